//! Hardware transactions: the status each abort leaves, what is undone, who conflicts with whom, and that a
//! transaction is part of the machine's state. The statuses are those of Intel's manual, volume 1, section
//! "RTM abort status definition"; zero where the manual names no bit for the reason.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use machine::board::{BoardConfig, TimerMode};
use machine::transactions::status::{CAPACITY, CONFLICT, DEBUG, EXPLICIT, NESTED, RETRY};
use machine::x86::flags::{CF, OF, SF, TF, ZF};
use machine::x86::state::reg;
use machine::{Events, Kinds, Machine, Playback, Played, Stop, StopSet, Tsx, snapshot};
use trace::{CpuId, PhysAddr};

const BSP: CpuId = CpuId(0);
const CODE: u64 = 0x1000;
const DATA: u64 = 0x1_0000;
const STACK: u64 = 0x7000;

type Asm = CodeAssembler;
type Built = Result<(), IcedError>;
type Build = fn(&mut Asm) -> Built;

/// A flat machine with transactions, about to execute `build`, with `DATA` in EBX and a stack.
fn machine(bitness: u32, cpus: u8, tsx: Option<Tsx>, build: impl Fn(&mut Asm) -> Built) -> Machine {
    let mut a = CodeAssembler::new(bitness).unwrap();
    build(&mut a).unwrap();
    let memory_bytes = 2 << 20;
    let mut m = Machine::new(BoardConfig { cpus, memory_bytes, tsx, ..BoardConfig::default() });
    let flat = if bitness == 64 { Machine::flat64(memory_bytes) } else { Machine::flat32(memory_bytes) };
    for page in [memory_bytes - 0x2000, memory_bytes - 0x1000] {
        let mut bytes = [0; 0x1000];
        flat.memory.read(PhysAddr(page), &mut bytes);
        m.memory.load(PhysAddr(page), &bytes);
    }
    m.memory.load(PhysAddr(CODE), &a.assemble(CODE).unwrap());
    for (cpu, stack) in m.cpus.iter_mut().zip((STACK..).step_by(0x100)) {
        cpu.clone_from(&flat.cpus[0]);
        cpu.rip = CODE;
        cpu.regs[reg::SP] = stack;
        cpu.regs[reg::BX] = DATA;
    }
    m
}

/// XBEGIN, a write, the body, XEND and HLT; the fallback is a HLT further on.
fn around(a: &mut Asm, body: impl Fn(&mut Asm) -> Built) -> Built {
    let mut fallback = a.create_label();
    a.mov(eax, 7)?;
    a.mov(ecx, 9)?;
    a.xbegin(fallback)?;
    a.mov(dword_ptr(ebx), 1)?;
    a.mov(ecx, 10)?;
    body(a)?;
    a.xend()?;
    a.hlt()?;
    a.set_label(&mut fallback)?;
    a.nop()?;
    a.hlt()
}

fn run(m: &mut Machine, cpu: u8) -> Stop {
    m.run(CpuId(cpu), &StopSet::after(10_000).on(Kinds::HALT.and(Kinds::EXCEPTION)), &mut Events::off())
}

/// EAX, ECX, and what the transaction wrote.
fn outcome(m: &Machine) -> (u64, u64, u32) {
    (m.cpus[0].regs[reg::AX], m.cpus[0].regs[reg::CX], m.memory.read_u32(PhysAddr(DATA)))
}

/// Code inside of a transaction, and the status with which it aborts.
type Reason = (&'static str, Build, Option<u32>);

#[test]
fn each_reason_leaves_its_status_and_no_other_trace() {
    fn nest(a: &mut Asm, levels: u32, inside: impl Fn(&mut Asm) -> Built) -> Built {
        let mut nowhere = a.create_label();
        for _ in 0..levels {
            a.xbegin(nowhere)?;
        }
        inside(a)?;
        for _ in 0..levels {
            a.xend()?;
        }
        a.set_label(&mut nowhere)?;
        a.nop()
    }
    /// Writes `n` lines that are 4096 bytes apart, all in one set of the cache; the first is the
    /// transaction's own.
    fn lines(a: &mut Asm, n: i32) -> Built {
        (1..n).try_for_each(|i| a.mov(dword_ptr(ebx + i * 0x1000), i))
    }
    let committed = None;
    run_each(&[
        ("nothing goes wrong", |a| a.nop(), committed),
        ("XABORT", |a| a.xabort(0x42), Some(0x42 << 24 | EXPLICIT)),
        ("XABORT in a nested one", |a| nest(a, 1, |a| a.xabort(3)), Some(3 << 24 | EXPLICIT | NESTED)),
        ("seven levels", |a| nest(a, 6, |a| a.nop()), committed),
        ("eight levels", |a| nest(a, 7, |a| a.nop()), Some(NESTED)),
        ("CPUID", |a| a.cpuid(), Some(0)),
        ("PAUSE", |a| a.pause(), Some(0)),
        ("INT", |a| a.int(0x80), Some(0)),
        ("INT3", |a| a.int3(), Some(0)),
        ("OUT", |a| a.out(0x80, al), Some(0)),
        ("CLI", |a| a.cli(), Some(0)),
        ("HLT", |a| a.hlt(), Some(0)),
        ("INVLPG", |a| a.invlpg(byte_ptr(ebx)), Some(0)),
        ("CLFLUSH", |a| a.clflush(byte_ptr(ebx)), Some(0)),
        ("an undefined instruction", |a| a.ud2(), Some(0)),
        (
            "a division by zero",
            |a| {
                a.xor(edi, edi)?;
                a.div(edi)
            },
            Some(0),
        ),
        (
            "the local APIC",
            |a| {
                a.mov(edi, 0xfee0_0020u32)?;
                a.mov(edi, dword_ptr(edi))
            },
            Some(0),
        ),
        ("eight lines of one set", |a| lines(a, 8), committed),
        ("nine lines of one set", |a| lines(a, 9), Some(CAPACITY)),
        (
            "lines that are only read have no limit",
            |a| (1..30).try_for_each(|i| a.mov(edi, dword_ptr(ebx + i * 0x1000))),
            committed,
        ),
        (
            "a string instruction over more than the cache",
            |a| {
                a.mov(edi, ebx)?;
                a.mov(ecx, 0x8000 + 0x1000)?;
                a.rep().stosb()
            },
            Some(CAPACITY),
        ),
        (
            "flags and the stack",
            |a| {
                a.stc()?;
                a.push(0x55)?;
                a.xabort(1)
            },
            Some(1 << 24 | EXPLICIT),
        ),
    ]);
}

fn run_each(table: &[Reason]) {
    for bitness in [32, 64] {
        for &(name, body, expected) in table {
            // PUSH of an immediate and INVLPG assemble in both; addresses have 32 bits in both.
            let build = |a: &mut Asm| around(a, body);
            for slow in [false, true] {
                let mut m = machine(bitness, 1, Some(Tsx::default()), build);
                if slow {
                    m.compile_nothing();
                }
                let before = m.cpus[0].flags.image();
                assert_eq!(run(&mut m, 0), Stop::Halt, "{name}");
                assert_eq!(m.transaction(BSP), None);
                match expected {
                    None => assert_eq!(outcome(&m), (7, 10, 1), "{name}, {bitness} bits"),
                    Some(status) => {
                        assert_eq!(outcome(&m), (status.into(), 9, 0), "{name}, {bitness} bits");
                        assert_eq!(m.cpus[0].regs[reg::SP], STACK);
                        assert_eq!(m.cpus[0].flags.image(), before, "{name}");
                        assert_eq!(m.memory.read_u32(PhysAddr(STACK - 4)), 0);
                    }
                }
            }
        }
    }
}

#[test]
fn outside_of_a_transaction() {
    for bitness in [32, 64] {
        let tsx = Some(Tsx::default());
        let mut m = machine(bitness, 1, tsx, |a| a.xend());
        match run(&mut m, 0) {
            Stop::Exception(e) => assert_eq!((e.vector, e.error), (13, Some(0))),
            // Without a table of handlers the fault cannot be delivered.
            stop => assert_eq!(stop, Stop::TripleFault),
        }
        let mut m = machine(bitness, 1, tsx, |a| {
            a.xabort(1)?;
            a.stc()?;
            a.xtest()?;
            a.hlt()
        });
        assert_eq!(run(&mut m, 0), Stop::Halt);
        assert_eq!(m.cpus[0].flags.image() & (ZF | CF | OF | SF), ZF);
        let mut m = machine(bitness, 1, tsx, |a| around(a, |a| a.xtest()));
        assert_eq!(run(&mut m, 0), Stop::Halt);
        assert_eq!(m.cpus[0].flags.image() & (ZF | CF | OF | SF), 0);
    }
}

#[test]
fn processors_without_it_know_none_of_it() {
    let builds: [Build; 4] = [|a| around(a, |a| a.nop()), |a| a.xend(), |a| a.xabort(1), |a| a.xtest()];
    for (build, executed) in builds.into_iter().zip([2, 0, 0, 0]) {
        let mut m = machine(64, 1, None, build);
        assert_eq!(run(&mut m, 0), Stop::TripleFault, "there is no table of handlers");
        assert_eq!(m.cpus[0].executed, executed + 1);
    }
    // Bit 11 is RTM; bit 4 would be the prefixes of lock elision.
    for (tsx, rtm) in [(None, 0), (Some(Tsx::default()), 1)] {
        let mut m = machine(32, 1, tsx, |a| {
            a.mov(eax, 7)?;
            a.xor(ecx, ecx)?;
            a.cpuid()?;
            a.hlt()
        });
        assert_eq!(run(&mut m, 0), Stop::Halt);
        assert_eq!(m.cpus[0].regs[reg::BX] >> 11 & 1, rtm);
        assert_eq!(m.cpus[0].regs[reg::BX] >> 4 & 1, 0);
    }
}

/// The manual lets a processor ignore the prefixes of lock elision (volume 1, "Hardware lock elision"), and
/// one whose CPUID does not report them does: the lock is taken and released, and there is no transaction.
#[test]
fn prefixes_of_lock_elision_are_ignored() {
    let plain: [Build; 5] = [
        |a| a.lock().add(dword_ptr(ebx), 5),
        |a| a.lock().cmpxchg(dword_ptr(ebx), ecx),
        |a| a.xchg(dword_ptr(ebx), ecx),
        |a| a.lock().bts(dword_ptr(ebx), 3),
        |a| a.mov(dword_ptr(ebx), ecx),
    ];
    let prefixed: [[Build; 2]; 5] = [
        [|a| a.xacquire().lock().add(dword_ptr(ebx), 5), |a| a.xrelease().lock().add(dword_ptr(ebx), 5)],
        [
            |a| a.xacquire().lock().cmpxchg(dword_ptr(ebx), ecx),
            |a| a.xrelease().lock().cmpxchg(dword_ptr(ebx), ecx),
        ],
        [|a| a.xacquire().xchg(dword_ptr(ebx), ecx), |a| a.xrelease().xchg(dword_ptr(ebx), ecx)],
        [|a| a.xacquire().lock().bts(dword_ptr(ebx), 3), |a| a.xrelease().lock().bts(dword_ptr(ebx), 3)],
        [|a| a.xrelease().mov(dword_ptr(ebx), ecx), |a| a.xrelease().mov(dword_ptr(ebx), ecx)],
    ];
    // What the instruction leaves, and whether a transaction was open behind it.
    let after = |bitness, tsx, slow, build: Build| {
        let mut m = machine(bitness, 1, tsx, |a| {
            a.mov(ecx, 9)?;
            build(a)?;
            a.hlt()
        });
        if slow {
            m.compile_nothing();
        }
        m.run(BSP, &StopSet::after(2), &mut Events::off());
        assert_eq!(m.transaction(BSP), None);
        assert_eq!(run(&mut m, 0), Stop::Halt);
        (outcome(&m), m.cpus[0].flags.image(), m.cpus[0].executed)
    };
    for (bitness, tsx) in [(32, None), (64, None), (32, Some(Tsx::default())), (64, Some(Tsx::default()))] {
        for (plain, prefixed) in plain.into_iter().zip(prefixed) {
            let expected = after(bitness, tsx, true, plain);
            assert_ne!(expected.0.2, 0, "the instruction writes");
            for build in prefixed {
                assert_eq!(after(bitness, tsx, false, build), expected);
                assert_eq!(after(bitness, tsx, true, build), expected);
            }
        }
    }
    // Inside a transaction too, and XTEST between the two finds none.
    let mut m =
        machine(64, 1, Some(Tsx::default()), |a| around(a, |a| a.xacquire().lock().add(dword_ptr(ebx), 5)));
    assert_eq!(run(&mut m, 0), Stop::Halt);
    assert_eq!(outcome(&m), (7, 10, 6));
    let mut m = machine(64, 1, Some(Tsx::default()), |a| {
        a.xacquire().lock().add(dword_ptr(ebx), 5)?;
        a.xtest()?;
        a.xrelease().mov(dword_ptr(ebx), 8)?;
        a.hlt()
    });
    assert_eq!(run(&mut m, 0), Stop::Halt);
    assert_eq!(m.cpus[0].flags.image() & ZF, ZF);
    assert_eq!(m.memory.read_u32(PhysAddr(DATA)), 8);
}

/// A page that is not there: the fault is not delivered, and nothing tells where it was.
#[test]
fn page_faults_abort_and_are_not_delivered() {
    for slow in [false, true] {
        let mut m = machine(64, 1, Some(Tsx::default()), |a| {
            around(a, |a| {
                a.mov(rdi, 0x7fff_0000_0000u64)?;
                a.mov(dword_ptr(rdi), 1)
            })
        });
        if slow {
            m.compile_nothing();
        }
        let before = m.cpus[0].cr2;
        assert_eq!(run(&mut m, 0), Stop::Halt);
        assert_eq!((outcome(&m), m.cpus[0].cr2), ((0, 9, 0), before));
    }
}

/// A transaction that has written and not ended.
fn in_the_middle(cpus: u8, tsx: Tsx) -> Machine {
    let mut m = machine(64, cpus, Some(tsx), |a| {
        around(a, |a| {
            a.mov(edx, dword_ptr(ebx + 0x400))?;
            a.mov(dword_ptr(ebx + 0x1000), 2)
        })
    });
    m.run(BSP, &StopSet::after(7), &mut Events::off());
    assert!(m.transaction(BSP).is_some());
    m
}

#[test]
fn whoever_touches_what_a_transaction_wrote_aborts_it_and_sees_nothing_of_it() {
    let conflict = u64::from(CONFLICT | RETRY);
    // Where, whether written, and whether it conflicts.
    let table = [
        (0, false, true),
        (0, true, true),
        (0x3c, false, true),
        (0x40, true, false),
        (0x400, false, false),
        (0x400, true, true),
        (0x1020, true, true),
        (0x2000, true, false),
    ];
    for (offset, write, conflicts) in table {
        let mut m = in_the_middle(2, Tsx::default());
        // The other processor makes one access: MOV to or from [RBX + offset].
        let code = [if write { 0x89 } else { 0x8b }, 0x83];
        m.memory.load(PhysAddr(0x3000), &code);
        m.memory.load(PhysAddr(0x3002), &u32::to_le_bytes(offset));
        m.cpus[1].rip = 0x3000;
        m.cpus[1].regs[reg::AX] = 0x77;
        m.run(CpuId(1), &StopSet::after(1), &mut Events::off());
        if !write {
            assert_eq!(m.cpus[1].regs[reg::AX], 0, "what was not committed is not seen");
        }
        assert_eq!(run(&mut m, 0), Stop::Halt);
        let expected = if conflicts { (conflict, 9) } else { (7, 10) };
        assert_eq!((outcome(&m).0, outcome(&m).1), expected, "{offset:#x}, {write}");
        let first = m.memory.read_u32(PhysAddr(DATA));
        let written = write && offset == 0;
        let value = match (written, conflicts) {
            (true, _) => 0x77,
            (false, true) => 0,
            (false, false) => 1,
        };
        assert_eq!(first, value, "{offset:#x}, {write}");
    }
    // With lines of one word there is no false sharing.
    let mut m = in_the_middle(2, Tsx { line_bytes: 8, ..Tsx::default() });
    m.memory.load(PhysAddr(0x3000), &[0x89, 0x83, 0x3c, 0, 0, 0]);
    m.cpus[1].rip = 0x3000;
    m.run(CpuId(1), &StopSet::after(1), &mut Events::off());
    assert_eq!(run(&mut m, 0), Stop::Halt);
    assert_eq!(outcome(&m), (7, 10, 1));
}

#[test]
fn a_clone_and_a_saved_machine_in_the_middle_go_on_in_the_same_way() {
    let mut m = in_the_middle(1, Tsx::default());
    let mut clone = m.clone();
    let mut other = Machine::flat64(2 << 20);
    other.clone_from(&m);
    let mut file = Vec::new();
    snapshot::write(&m, 1, &mut file).unwrap();
    let mut read = snapshot::read(&file, 1).unwrap();
    let begun = m.state_hash();
    assert_eq!(run(&mut m, 0), Stop::Halt);
    for copy in [&mut clone, &mut other, &mut read] {
        assert_eq!(copy.state_hash(), begun);
        assert_eq!(run(copy, 0), Stop::Halt);
        assert_eq!((outcome(copy), copy.state_hash()), ((7, 10, 1), m.state_hash()));
    }
    let mut outside = in_the_middle(1, Tsx::default());
    outside.suspend_transaction(BSP);
    assert_ne!(outside.state_hash(), begun, "the transaction is part of the state");
}

#[test]
fn the_caller_decides_whether_a_transaction_is_tried() {
    let until = StopSet::after(100).on(Kinds::TRANSACTION.and(Kinds::TRANSACTION_END).and(Kinds::HALT));
    let mut events = Events::off();
    let mut m = machine(32, 1, Some(Tsx::default()), |a| around(a, |a| a.nop()));
    assert_eq!(m.run(BSP, &until, &mut events), Stop::TransactionBegin);
    assert_eq!(m.cpus[0].executed, 2);
    let mut refused = m.clone();
    assert_eq!(m.run(BSP, &until, &mut events), Stop::TransactionEnd { status: None });
    assert_eq!(m.run(BSP, &until, &mut events), Stop::Halt);
    assert_eq!(outcome(&m), (7, 10, 1));
    let start = refused.clone();
    refused.record();
    refused.refuse_transaction(BSP, RETRY, &mut events);
    assert_eq!(refused.cpus[0].executed, 3);
    assert_eq!(refused.run(BSP, &until, &mut events), Stop::Halt);
    assert_eq!(outcome(&refused), (RETRY.into(), 9, 0));
    let mut played = start;
    let tape = refused.tape().unwrap();
    assert_eq!(Playback::new(tape).go(&mut played, &StopSet::default(), &mut events), Played::End);
    assert_eq!(played.state_hash(), refused.state_hash());
    // An abort carries its status.
    let mut m = machine(32, 1, Some(Tsx::default()), |a| around(a, |a| a.xabort(5)));
    assert_eq!(m.run(BSP, &until, &mut events), Stop::TransactionBegin);
    let status = Some(5 << 24 | EXPLICIT);
    assert_eq!(m.run(BSP, &until, &mut events), Stop::TransactionEnd { status });
}

#[test]
fn a_suspended_transaction_goes_on_unless_somebody_conflicted() {
    for (offset, expected) in [(0x2000u32, (7, 10)), (0x1000, ((CONFLICT | RETRY).into(), 9))] {
        let mut m = in_the_middle(1, Tsx::default());
        let registers = m.cpus[0].clone();
        let name = m.suspend_transaction(BSP).unwrap();
        assert_eq!(m.transaction(BSP), None);
        // Another thread runs on the same processor.
        m.memory.load(PhysAddr(0x3000), &[0x89, 0x83]);
        m.memory.load(PhysAddr(0x3002), &offset.to_le_bytes());
        m.cpus[0].rip = 0x3000;
        m.run(BSP, &StopSet::after(1), &mut Events::off());
        let executed = m.cpus[0].executed;
        m.cpus[0].clone_from(&registers);
        m.cpus[0].executed = executed;
        assert!(m.resume_transaction(BSP, name) && !m.resume_transaction(BSP, name));
        assert_eq!(run(&mut m, 0), Stop::Halt);
        assert_eq!((outcome(&m).0, outcome(&m).1), expected);
    }
}

#[test]
fn interrupts_and_single_steps_abort() {
    let mut m = in_the_middle(1, Tsx::default());
    m.set_timer_mode(TimerMode::Controlled);
    m.cpus[0].nmi_pending = true;
    let stop =
        m.run(BSP, &StopSet::after(10).on(Kinds::TRANSACTION_END.and(Kinds::INTERRUPT)), &mut Events::off());
    assert_eq!(stop, Stop::TransactionEnd { status: Some(0) });
    let mut m = machine(64, 1, Some(Tsx::default()), |a| around(a, |a| a.nop()));
    m.run(BSP, &StopSet::after(4), &mut Events::off());
    m.cpus[0].flags.put(TF, true);
    let stop = m.run(BSP, &StopSet::after(10).on(Kinds::TRANSACTION_END), &mut Events::off());
    assert_eq!(stop, Stop::TransactionEnd { status: Some(DEBUG) });
}

#[test]
fn a_transaction_without_end_is_bounded_by_the_budget() {
    let mut m = machine(64, 1, Some(Tsx::default()), |a| {
        around(a, |a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.jmp(again)
        })
    });
    assert_eq!(run(&mut m, 0), Stop::Budget);
    assert!(m.transaction(BSP).is_some());
}

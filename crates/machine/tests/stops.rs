//! What ends a run, what a run can be asked, and exceptions in all their corners.

use iced_x86::code_asm::*;
use machine::x86::flags;
use machine::x86::state::reg;
use machine::x86::trap::Exception;
use machine::{
    Access, Events, Happening, Kinds, LogEntry, Machine, Noting, Segment, Stop, StopSet, Watchpoint,
};
use std::sync::Arc;
use trace::{AccessKind, CpuId, PhysAddr, VirtAddr};

const BSP: CpuId = CpuId(0);
const CODE: u64 = 0x1000;
const DATA: u64 = 0x8000;
const IDT: u64 = 0x4000;
const GDT: u64 = 0x4800;
const TSS: u64 = 0x4900;
/// All exception handlers; each is a HLT.
const HANDLERS: u64 = 0x5000;
const DIRECTORY: u64 = 0x1_0000;
const TABLE: u64 = 0x1_1000;

type Asm = CodeAssembler;
type Built = Result<(), iced_x86::IcedError>;

/// A flat machine with tables for 32 exceptions whose handlers halt, about to execute what `build` assembles.
fn machine(build: impl FnOnce(&mut Asm) -> Built) -> Machine {
    let mut a = CodeAssembler::new(32).unwrap();
    build(&mut a).unwrap();
    let mut m = Machine::flat32(1 << 20);
    m.memory.load(PhysAddr(CODE), &a.assemble(CODE).unwrap());
    for vector in 0..64u64 {
        let handler = HANDLERS + vector * 16;
        m.memory.write_u8(PhysAddr(handler), 0xf4);
        m.memory.write_u64(PhysAddr(IDT + vector * 8), handler & 0xffff | 8 << 16 | 0xee00 << 32);
    }
    for (i, descriptor) in
        [0, 0x00cf_9a00_0000_ffff, 0x00cf_9200_0000_ffff, 0x00cf_fa00_0000_ffff, 0x00cf_f200_0000_ffff]
            .into_iter()
            .enumerate()
    {
        m.memory.write_u64(PhysAddr(GDT + 8 * i as u64), descriptor);
    }
    m.memory.write_u32(PhysAddr(TSS + 4), 0x7800);
    m.memory.write_u16(PhysAddr(TSS + 8), 16);
    let cpu = &mut m.cpus[0];
    cpu.idtr.base = IDT;
    cpu.idtr.limit = 64 * 8 - 1;
    cpu.gdtr.base = GDT;
    cpu.gdtr.limit = 5 * 8 - 1;
    cpu.tr = Segment { selector: 0x28, base: TSS, limit: 0x67, attributes: 0x8b };
    cpu.rip = CODE;
    cpu.regs[reg::SP] = 0x7000;
    cpu.regs[reg::BX] = DATA;
    m
}

/// Pages 0–255 mapped to themselves, except that `page` gets `entry`.
fn with_paging(m: &mut Machine, page: u64, entry: u32) {
    m.memory.write_u32(PhysAddr(DIRECTORY), TABLE as u32 | 7);
    for i in 0..256u32 {
        m.memory.write_u32(PhysAddr(TABLE + 4 * u64::from(i)), i << 12 | 7);
    }
    m.memory.write_u32(PhysAddr(TABLE + 4 * page), entry);
    m.cpus[0].cr3 = DIRECTORY;
    m.cpus[0].cr0 |= 0x8001_0000;
}

fn to_ring_3(m: &mut Machine) {
    let cpu = &mut m.cpus[0];
    cpu.segments = [Segment::flat(0x23, false, 3); 6];
    cpu.segments[1] = Segment::flat(0x1b, true, 3);
}

fn run(m: &mut Machine, until: &StopSet) -> Stop {
    m.run(BSP, until, &mut Events::off())
}

/// Runs to the first exception.
fn exception(m: &mut Machine) -> Exception {
    match run(m, &StopSet::after(100).on(Kinds::EXCEPTION)) {
        Stop::Exception(e) => e,
        stop => panic!("{stop}"),
    }
}

#[test]
fn budgets_are_exact() {
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.inc(eax)?;
        a.add(ecx, 2)?;
        a.jmp(again)
    });
    for n in [1, 2, 3, 4, 64, 65, 1000, 12_345] {
        let before = m.instructions();
        assert_eq!(run(&mut m, &StopSet::after(n)), Stop::Budget);
        assert_eq!(m.instructions() - before, n);
    }
    let total = m.instructions();
    assert_eq!(m.cpus[0].regs[reg::AX], total.div_ceil(3));
}

/// A program's fences are stopped before, each once, however they are executed otherwise; a kernel's are not.
#[test]
fn fences_of_programs_are_stopped_before() {
    let build = |a: &mut Asm| -> Built {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(dword_ptr(ebx), eax)?;
        a.xchg(dword_ptr(ebx), ecx)?;
        a.lock().inc(dword_ptr(ebx + 4))?;
        a.inc(dword_ptr(ebx + 4))?;
        a.mfence()?;
        a.sfence()?;
        a.xchg(eax, ecx)?;
        a.cpuid()?;
        a.mov(ebx, DATA as u32)?;
        a.jmp(again)
    };
    let mut m = machine(build);
    // First without, so that they are compiled.
    assert_eq!(run(&mut m, &StopSet::after(100)), Stop::Budget);
    assert_eq!(run(&mut m, &StopSet::after(1000).on(Kinds::USER_FENCE)), Stop::Budget);
    for (ring, kind) in [(3, Kinds::USER_FENCE), (3, Kinds::FENCE), (0, Kinds::FENCE)] {
        are_stopped_before(&mut machine(build), ring, kind);
    }
}

fn are_stopped_before(m: &mut Machine, ring: u8, kind: Kinds) {
    if ring == 3 {
        to_ring_3(m);
    }
    for round in 0..3 {
        for fence in ["xchg", "lock inc", "mfence", "cpuid"] {
            let stop = run(m, &StopSet::after(100).on(kind));
            assert_eq!(stop, Stop::Fence, "{fence}, round {round}");
            assert!(m.at_fence(BSP), "{fence}, round {round}");
        }
    }
    assert_eq!(m.memory.read_u32(PhysAddr(DATA + 4)), 6);
    assert_eq!(run(m, &StopSet::after(1)), Stop::Budget);
    assert!(!m.at_fence(BSP));
}

#[test]
fn a_code_address_stops_before_it_and_is_stepped_past() {
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.inc(eax)?;
        a.nop()?;
        a.inc(ecx)?;
        a.jmp(again)
    });
    run(&mut m, &StopSet::after(4000));
    let set = StopSet::after(1000).at(VirtAddr(CODE + 2));
    for n in 1..5 {
        assert_eq!(run(&mut m, &set), Stop::Code(VirtAddr(CODE + 2)));
        assert_eq!((m.cpus[0].regs[reg::AX], m.cpus[0].regs[reg::CX]), (1000 + n, 999 + n));
    }
    assert_eq!(run(&mut m, &StopSet::after(100)), Stop::Budget);
    let mut other = m.clone();
    assert_eq!(run(&mut other, &set), run(&mut m, &set));
    // A clone made at the stop may go on, too.
    let mut clone = m.clone();
    assert_eq!(run(&mut clone, &set), Stop::Code(VirtAddr(CODE + 2)));
    assert_eq!(clone.instructions() - m.instructions(), 4);
}

#[test]
fn watched_memory_and_ports_stop_after_the_access() {
    let mut m = machine(|a| {
        a.mov(dword_ptr(ebx), 1)?;
        a.mov(eax, dword_ptr(ebx + 6))?;
        a.mov(byte_ptr(ebx + 8), 1)?;
        a.out(0x80, al)?;
        a.nop()
    });
    let watch = Watchpoint { start: VirtAddr(DATA + 8), bytes: 4, reads: true, writes: true };
    let set = StopSet { ports: vec![0x80..=0x80], ..StopSet::after(100).watching(watch) };
    let access = |offset: u64, size, kind, pc, instruction| {
        let (at, instruction) = (DATA + offset, Some(instruction));
        let (address, physical) = (VirtAddr(at), Some(PhysAddr(at)));
        Stop::Watchpoint(Access {
            address,
            physical,
            size,
            kind,
            atomic: false,
            pc: VirtAddr(pc),
            instruction,
        })
    };
    assert_eq!(run(&mut m, &set), access(6, 4, AccessKind::Read, CODE + 6, 1));
    assert_eq!(run(&mut m, &set), access(8, 1, AccessKind::Write, CODE + 9, 2));
    assert_eq!(run(&mut m, &set), Stop::Port { port: 0x80, size: 1, write: true, value: 0 });
}

#[test]
fn happenings_stop() {
    let mut m = machine(|a| {
        a.mov(eax, 0x524f_434b)?;
        a.cpuid()?;
        a.pause()?;
        a.sti()?;
        a.cli()?;
        a.push(2)?;
        a.popfd()?;
        a.hlt()
    });
    let all = Kinds::HYPERCALL.and(Kinds::PAUSE).and(Kinds::INTERRUPT_FLAG).and(Kinds::HALT);
    let set = StopSet::after(100).on(all);
    let stops: Vec<Stop> = (0..5).map(|_| run(&mut m, &set)).collect();
    let flag = |enabled| Stop::InterruptFlag { enabled };
    assert_eq!(stops, [Stop::Hypercall, Stop::Pause, flag(true), flag(false), Stop::Halt]);
    assert_eq!(m.cpus[0].regs[reg::AX], 0x524f_434b);
    assert_eq!(run(&mut m, &StopSet::after(10)), Stop::Halt);
}

/// What is noted of the interrupt flag without stopping is what a run would stop at.
#[test]
fn changes_of_the_interrupt_flag_are_noted() {
    let mut m = machine(|a| {
        a.sti()?;
        a.nop()?;
        a.int(0x21)?;
        a.cli()?;
        a.sti()?;
        a.push(2)?;
        a.popfd()?;
        a.hlt()
    });
    m.memory.write_u8(PhysAddr(HANDLERS + 0x21 * 16), 0xcf);
    let (mut stopped, mut noted) = (m.clone(), Events::off());
    noted.flags = true;
    assert_eq!(m.run(BSP, &StopSet::after(100).on(Kinds::HALT), &mut noted), Stop::Halt);
    let set = StopSet::after(100).on(Kinds::HALT.and(Kinds::INTERRUPT_FLAG));
    let mut expected = Vec::new();
    while let Stop::InterruptFlag { enabled } = run(&mut stopped, &set) {
        expected.push((enabled, stopped.pc(BSP)));
    }
    let seen = noted.flag_changes.iter().map(|change| (change.enabled, change.pc)).collect::<Vec<_>>();
    assert_eq!(seen.iter().filter(|(enabled, _)| *enabled).count(), 3, "{seen:?}");
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert_eq!(seen, expected);
    assert_eq!(m.pc(BSP), stopped.pc(BSP));
}

/// A function that turns interrupts off, called three times from one place and once from another; where it returns
/// to in the end, a string instruction is repeated. Gives the addresses of its entry, and of where it returns to.
fn calls() -> (Machine, u64, [u64; 2]) {
    let mut places = Vec::new();
    let m = machine(|a| {
        let (mut again, mut function, mut first, mut last) =
            (a.create_label(), a.create_label(), a.create_label(), a.create_label());
        a.sti()?;
        a.mov(esi, 3)?;
        a.set_label(&mut again)?;
        a.push(esi)?;
        a.call(function)?;
        a.set_label(&mut first)?;
        a.pop(eax)?;
        a.dec(esi)?;
        a.jnz(again)?;
        a.mov(edi, DATA as u32)?;
        a.mov(ecx, 100)?;
        a.push(7)?;
        a.call(function)?;
        a.set_label(&mut last)?;
        a.rep().stosb()?;
        a.hlt()?;
        a.set_label(&mut function)?;
        a.pushfd()?;
        a.cli()?;
        a.mov(eax, dword_ptr(esp + 8))?;
        a.popfd()?;
        a.ret()?;
        let built =
            a.assemble_options(CODE, iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
        places =
            [function, first, last].iter().map(|label| built.label_ip(label)).collect::<Result<_, _>>()?;
        Ok(())
    });
    (m, places[0], [places[1], places[2]])
}

/// What is noted is the state in which a run would have stopped, in the same order as changes of the interrupt
/// flag, wherever runs are cut and whatever executes the instructions.
#[test]
fn addresses_are_noted_that_are_passed() {
    let (m, function, [first, last]) = calls();
    let addresses = [function, first, last];
    let seen = |m: &Machine| {
        let mut stack = [0; 32];
        assert!(m.read_virt(BSP, VirtAddr(m.cpus[0].regs[reg::SP]), &mut stack));
        (m.pc(BSP), m.cpus[0].regs, stack)
    };
    let (mut expected, mut flags_before, mut changes) = (Vec::new(), Vec::new(), 0);
    let mut stopped = m.clone();
    let stops = addresses.into_iter().fold(StopSet::default(), |set, at| set.at(VirtAddr(at)));
    let stops = stops.on(Kinds::HALT.and(Kinds::INTERRUPT_FLAG));
    loop {
        match run(&mut stopped, &stops) {
            Stop::Code(_) => {
                expected.push(seen(&stopped));
                flags_before.push(changes);
            }
            Stop::InterruptFlag { .. } => changes += 1,
            stop => break assert_eq!(stop, Stop::Halt),
        }
    }
    assert_eq!(expected.len(), 8);
    assert_eq!((flags_before[1], changes), (3, 9));
    let noted = addresses.into_iter().map(|at| (at, Noting::Always)).collect();
    let set = StopSet { noted: Arc::new(noted), on: Kinds::HALT, ..StopSet::default() };
    for (budget, compiled) in
        [(u64::MAX, true), (u64::MAX, false), (1, true), (2, true), (7, true), (7, false)]
    {
        let (mut m, mut events) = (m.clone(), Events::off());
        events.flags = true;
        if !compiled {
            m.compile_nothing();
        }
        let set = StopSet { instructions: Some(budget), ..set.clone() };
        let stop = loop {
            match m.run(BSP, &set, &mut events) {
                Stop::Budget => {}
                stop => break stop,
            }
        };
        assert_eq!(stop, Stop::Halt);
        let noted =
            events.passed.iter().map(|passed| (passed.pc, passed.regs, passed.stack)).collect::<Vec<_>>();
        assert_eq!(noted, expected, "{budget} instructions at a time, compiled: {compiled}");
        let before = events.passed.iter().map(|passed| passed.flag_changes_before).collect::<Vec<_>>();
        assert_eq!(before, flags_before);
        assert!(events.passed.iter().all(|passed| passed.stack_bytes == 32 && passed.ring == 0));
        assert_eq!(m.state_hash(), stopped.state_hash());
    }
}

/// A function is noted where it begins if it is known that the run is noticed, or stops, where it returns to.
#[test]
fn a_call_is_noted_if_its_return_is_known() {
    let (mut m, function, [first, last]) = calls();
    let noted = [(function, Noting::IfReturnIsKnown), (first, Noting::Always)].into_iter().collect();
    let mut set = StopSet { noted: Arc::new(noted), on: Kinds::HALT, ..StopSet::default() };
    let mut events = Events::off();
    assert_eq!(m.run(BSP, &set, &mut events), Stop::Code(VirtAddr(function)));
    assert_eq!(
        events.passed.iter().map(|passed| passed.pc.0).collect::<Vec<_>>(),
        [function, first].repeat(3)
    );
    events.clear();
    set = set.at(VirtAddr(last));
    assert_eq!(m.run(BSP, &set, &mut events), Stop::Code(VirtAddr(last)), "not where it stopped before");
    assert_eq!(m.run(BSP, &set, &mut events), Stop::Halt);
    assert_eq!(events.passed, []);
    let (mut m, ..) = calls();
    assert_eq!(m.run(BSP, &set, &mut events), Stop::Code(VirtAddr(last)));
    assert_eq!(events.passed.len(), 7);
}

/// Many notes end the run, before there are too many.
#[test]
fn notes_are_limited() {
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.inc(eax)?;
        a.jmp(again)
    });
    let noted = [(CODE, Noting::Always)].into_iter().collect();
    let set = StopSet { noted: Arc::new(noted), ..StopSet::after(100_000) };
    let (mut events, mut seen) = (Events::off(), Vec::new());
    while seen.len() < 50_000 {
        assert_eq!(m.run(BSP, &set, &mut events), Stop::LogFull);
        assert!((1..1000).contains(&events.passed.len()), "{}", events.passed.len());
        seen.extend(events.passed.drain(..).map(|passed| passed.regs[reg::AX]));
    }
    assert!(seen.iter().copied().eq(0..seen.len() as u64));
    // Another run notes nothing, and goes on for long without a look at anything.
    assert_eq!(m.run(BSP, &StopSet::after(20_000_000), &mut events), Stop::Budget);
    assert_eq!(events.passed, []);
}

#[test]
fn interrupts_are_injected_and_returned_from() {
    let mut m = machine(|a| {
        a.sti()?;
        a.nop()?;
        a.nop()?;
        a.nop()
    });
    m.memory.write_u8(PhysAddr(HANDLERS + 0x21 * 16), 0xcf);
    assert!(!m.can_interrupt(BSP));
    run(&mut m, &StopSet::after(1));
    assert!(!m.can_interrupt(BSP), "the instruction after STI is protected");
    run(&mut m, &StopSet::after(1));
    assert!(m.can_interrupt(BSP));
    let mut events = Events::all();
    assert_eq!(m.inject(BSP, 0x21, &mut events), None);
    assert_eq!(m.cpus[0].rip, HANDLERS + 0x21 * 16);
    assert!(!m.can_interrupt(BSP));
    let stop = m.run(BSP, &StopSet::after(10).on(Kinds::INTERRUPT_RETURN), &mut events);
    assert_eq!((stop, m.cpus[0].rip), (Stop::InterruptReturn, CODE + 2));
    let mut seen = Vec::new();
    m.drain(&mut events, |e| {
        if let LogEntry::Happening(_, h) = e {
            seen.push(h);
        }
    });
    let pc = VirtAddr(CODE + 2);
    let expected =
        [Happening::Cpu(BSP), Happening::Interrupt { vector: 0x21, pc }, Happening::InterruptReturn { pc }];
    assert_eq!(seen, expected);
}

#[test]
fn the_log_has_a_limit() {
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.inc(dword_ptr(ebx))?;
        a.jmp(again)
    });
    let mut events = Events::all();
    events.limit_words = 10_000;
    let (mut accesses, mut drains) = (0u64, 0);
    while m.instructions() < 100_000 {
        let left = 100_000 - m.instructions();
        match m.run(BSP, &StopSet::after(left), &mut events) {
            Stop::Budget => {}
            Stop::LogFull => drains += 1,
            stop => panic!("{stop}"),
        }
        m.drain(&mut events, |e| accesses += u64::from(matches!(e, LogEntry::Access(_))));
    }
    assert_eq!(accesses, 50_000, "an update for every second instruction");
    assert!(drains > 4);
}

#[test]
fn exceptions_have_their_error_codes() {
    let plain = |vector, error| Exception { vector, error, address: None };
    type Row = (&'static str, fn(&mut Asm) -> Built, Exception);
    let table: &[Row] = &[
        ("divide", |a| a.div(ecx), plain(0, None)),
        ("breakpoint", |a| a.int3(), plain(3, None)),
        ("undefined", |a| a.ud2(), plain(6, None)),
        ("null selector", |a| a.push(0).and_then(|()| a.pop(ss)), plain(13, Some(0))),
        ("selector beyond", |a| a.push(0x103).and_then(|()| a.pop(es)), plain(13, Some(0x100))),
        ("gate", |a| a.int(0x50), plain(13, Some(0x50 * 8 + 2))),
        ("lock", |a| a.db(&[0xf0, 0x90]), plain(6, None)),
        ("paging in real mode", |a| a.mov(eax, i32::MIN).and_then(|()| a.mov(cr0, eax)), plain(13, Some(0))),
    ];
    for (name, build, expected) in table {
        let mut m = machine(build);
        assert_eq!(exception(&mut m), *expected, "{name}");
    }
}

#[test]
fn page_faults_tell_everything_and_leave_no_trace() {
    type Row = (&'static str, fn(&mut Asm) -> Built, u32, bool, u64, u32);
    // What, code, entry of the data page, ring 3, address, error code.
    let table: &[Row] = &[
        ("read", |a| a.mov(eax, dword_ptr(ebx)), 0, false, DATA, 0),
        ("write", |a| a.mov(dword_ptr(ebx), eax), 0, false, DATA, 2),
        ("modify", |a| a.add(dword_ptr(ebx), eax), 0, false, DATA, 2),
        ("user", |a| a.mov(eax, dword_ptr(ebx)), 0x8003, true, DATA, 5),
        ("read-only", |a| a.mov(dword_ptr(ebx), eax), 0x8005, true, DATA, 7),
        ("second page", |a| a.mov(dword_ptr(ebx - 2), eax), 0, false, DATA, 2),
        ("pop", |a| a.pop(dword_ptr(ebx)), 0, false, DATA, 2),
        ("exchange", |a| a.xchg(dword_ptr(ebx), eax), 0x8005, false, DATA, 3),
        ("string", |a| a.movsb(), 0, false, DATA, 2),
    ];
    for (name, build, entry, user, address, error) in table {
        let mut m = machine(build);
        with_paging(&mut m, DATA >> 12, *entry);
        let cpu = &mut m.cpus[0];
        cpu.regs[reg::DI] = DATA;
        cpu.regs[reg::SI] = 0x6000;
        cpu.regs[reg::AX] = 0x1234;
        cpu.flags.set_image(flags::CF | flags::ZF);
        if *user {
            to_ring_3(&mut m);
        }
        let before = m.clone();
        let got = match run(&mut m, &StopSet::after(1).on(Kinds::EXCEPTION)) {
            Stop::Exception(e) => e,
            stop => panic!("{name}: {stop}"),
        };
        let expected = Exception { vector: 14, error: Some(*error), address: Some(*address) };
        assert_eq!(got, expected, "{name}");
        let (old, new) = (&before.cpus[0], &m.cpus[0]);
        assert_eq!(new.cr2, *address, "{name}");
        for i in (0..8).filter(|&i| i != reg::SP) {
            assert_eq!(old.regs[i], new.regs[i], "{name}: register {i}");
        }
        let mut pushed = [0; 12];
        m.read_virt(BSP, VirtAddr(new.regs[reg::SP] + 4), &mut pushed);
        assert_eq!(
            u64::from(u32::from_le_bytes(pushed[..4].try_into().unwrap())),
            CODE,
            "{name}: return address"
        );
        assert_eq!(pushed[8] & 0x41, 0x41, "{name}: pushed flags");
        let mut bytes = [0; 4];
        m.memory.read(PhysAddr(DATA - 2), &mut bytes);
        assert_eq!(bytes, [0; 4], "{name}: memory");
    }
}

#[test]
fn accessed_and_dirty_bits() {
    let mut m = machine(|a| {
        a.mov(eax, dword_ptr(ebx))?;
        a.mov(dword_ptr(ebx), eax)
    });
    with_paging(&mut m, 0x99, 0);
    let entry = PhysAddr(TABLE + 4 * (DATA >> 12));
    run(&mut m, &StopSet::after(1));
    assert_eq!(m.memory.read_u32(entry) & 0x60, 0x20);
    run(&mut m, &StopSet::after(1));
    assert_eq!(m.memory.read_u32(entry) & 0x60, 0x60);
    assert_eq!(m.memory.read_u32(PhysAddr(DIRECTORY)) & 0x60, 0x20);
}

#[test]
fn rings_switch_stacks_and_come_back() {
    let mut m = machine(|a| {
        a.int(0x30)?;
        a.nop()
    });
    m.memory.write_u8(PhysAddr(HANDLERS + 0x30 * 16), 0xcf);
    to_ring_3(&mut m);
    assert_eq!(run(&mut m, &StopSet::after(1)), Stop::Budget);
    let cpu = &m.cpus[0];
    assert_eq!((cpu.cpl(), cpu.regs[reg::SP], cpu.rip), (0, 0x7800 - 20, HANDLERS + 0x30 * 16));
    let frame: Vec<u32> = (0..5).map(|i| m.memory.read_u32(PhysAddr(0x7800 - 20 + 4 * i))).collect();
    assert_eq!(frame, [CODE as u32 + 2, 0x1b, 2, 0x7000, 0x23]);
    assert_eq!(run(&mut m, &StopSet::after(1)), Stop::Budget);
    let cpu = &m.cpus[0];
    assert_eq!((cpu.cpl(), cpu.regs[reg::SP], cpu.rip), (3, 0x7000, CODE + 2));
}

#[test]
fn ring_3_may_not() {
    let table: &[fn(&mut Asm) -> Built] = &[
        |a| a.hlt(),
        |a| a.cli(),
        |a| a.out(0x80, al),
        |a| a.mov(cr3, eax),
        |a| a.lgdt(fword_ptr(ebx)),
        |a| a.rdmsr(),
        |a| a.int(0x11),
        |a| a.invlpg(dword_ptr(ebx)),
    ];
    for (i, build) in table.iter().enumerate() {
        let mut m = machine(build);
        m.memory.write_u16(PhysAddr(TSS + 0x66), 0x68);
        m.memory.write_u32(PhysAddr(IDT + 0x11 * 8 + 4), 0x8e00);
        to_ring_3(&mut m);
        let e = exception(&mut m);
        assert_eq!((e.vector, m.cpus[0].cpl()), (13, 0), "row {i}");
    }
}

#[test]
fn faults_pile_up_to_a_triple_fault() {
    let mut m = machine(|a| a.div(ecx));
    m.cpus[0].idtr.limit = 0;
    assert_eq!(run(&mut m, &StopSet::after(10)), Stop::TripleFault);
    assert_eq!(run(&mut m, &StopSet::after(10)), Stop::TripleFault);
    let mut m = machine(|a| a.div(ecx));
    m.memory.write_u64(PhysAddr(IDT), 0);
    assert_eq!(run(&mut m, &StopSet::after(2)), Stop::Halt);
    assert_eq!(m.cpus[0].rip, HANDLERS + 8 * 16 + 1, "not present, then double fault");
}

#[test]
fn single_steps_and_debug_registers() {
    let mut m = machine(|a| {
        a.nop()?;
        a.mov(dword_ptr(ebx), eax)?;
        a.nop()
    });
    m.cpus[0].flags.put(flags::TF, true);
    let e = exception(&mut m);
    let seen = (e.vector, m.memory.read_u32(PhysAddr(m.cpus[0].regs[reg::SP])), m.cpus[0].dr[6] >> 14 & 1);
    assert_eq!(seen, (1, CODE as u32 + 1, 1));

    let mut m = machine(|a| {
        a.nop()?;
        a.mov(dword_ptr(ebx), eax)?;
        a.nop()
    });
    m.cpus[0].dr[0] = DATA;
    m.cpus[0].dr[7] = 0x400 | 1 | 0xd << 16;
    let e = exception(&mut m);
    let seen = (e.vector, m.memory.read_u32(PhysAddr(m.cpus[0].regs[reg::SP])), m.cpus[0].dr[6] & 15);
    assert_eq!(seen, (1, CODE as u32 + 3, 1));

    let mut m = machine(|a| {
        a.nop()?;
        a.nop()
    });
    m.cpus[0].dr[1] = CODE + 1;
    m.cpus[0].dr[7] = 0x400 | 4;
    let e = exception(&mut m);
    assert_eq!((e.vector, m.memory.read_u32(PhysAddr(m.cpus[0].regs[reg::SP]))), (1, CODE as u32 + 1));
}

#[test]
fn what_is_not_modelled_is_said() {
    let mut m = machine(|a| a.mov(eax, 1).and_then(|()| a.mov(cr4, eax)));
    let Stop::Unsupported(what) = run(&mut m, &StopSet::after(10)) else { panic!("not modelled") };
    expect_test::expect!["unsupported: virtual-8086 extensions in CR4 at 0x00001005: 0f 22 e0  mov cr4,eax"]
        .assert_eq(&what.to_string());
    assert_eq!(m.cpus[0].rip, CODE + 5);
}

#[test]
fn code_may_change_under_the_processor() {
    // The loop counts in ECX; the outside changes what it adds.
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.add(ecx, 0x11)?;
        a.jmp(again)
    });
    run(&mut m, &StopSet::after(2000));
    m.memory.write_u8(PhysAddr(CODE + 2), 0x22);
    run(&mut m, &StopSet::after(2000));
    assert_eq!(m.cpus[0].regs[reg::CX], 1000 * 0x33);
    assert!(m.write_virt(BSP, VirtAddr(CODE + 2), &[0x44]));
    run(&mut m, &StopSet::after(2000));
    assert_eq!(m.cpus[0].regs[reg::CX], 1000 * 0x77);
}

//! 64-bit mode: the way into it, what instructions do there, its page tables, interrupts and system calls.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use machine::x86::flags::{AF, CF, OF, PF, SF, ZF};
use machine::x86::state::{Table, cr0, cr4, efer, reg};
use machine::x86::trap::Exception;
use machine::{Events, Kinds, Machine, Seg, Segment, Stop, StopSet, Watchpoint};
use trace::{CpuId, PhysAddr, VirtAddr};

const BSP: CpuId = CpuId(0);
const CODE: u64 = 0x1_0000;
const STACK: u64 = 0x7000;
const DATA: u64 = 0x8000;
const HIGH: u64 = 0xffff_ff80_0000_0000;
const NOT_CANONICAL: u64 = 0x8000_0000_0000;

type Build = fn(&mut CodeAssembler) -> Result<(), IcedError>;

fn assemble(
    bitness: u32,
    at: u64,
    build: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
) -> Vec<u8> {
    let mut a = CodeAssembler::new(bitness).unwrap();
    build(&mut a).unwrap();
    a.assemble(at).unwrap()
}

/// A flat machine about to execute what `build` assembles, with `DATA` in RBX and RSI and a stack.
fn machine(build: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Machine {
    let mut m = Machine::flat64(2 << 20);
    m.memory.load(PhysAddr(CODE), &assemble(64, CODE, build));
    let cpu = &mut m.cpus[0];
    cpu.rip = CODE;
    cpu.regs[reg::SP] = STACK;
    cpu.regs[reg::BX] = DATA;
    cpu.regs[reg::SI] = DATA;
    m
}

fn run(m: &mut Machine, count: u64) -> Stop {
    m.run(BSP, &StopSet::after(count).on(Kinds::EXCEPTION), &mut Events::off())
}

const N: u64 = 0x1122_3344_5566_7788;
const TOP: u64 = 1 << 63;

/// A name, the code, RAX, RCX and RDX before it, and RAX, RDX and the flags after it.
type Row = (&'static str, Build, (u64, u64, u64), (u64, u64, u32));

#[test]
fn registers_and_flags() {
    execute(&[
        ("32-bit results clear the rest", |a| a.mov(eax, ecx), (N, N, 0), (0x5566_7788, 0, 0)),
        ("16-bit results keep the rest", |a| a.mov(ax, cx), (N, 0, 0), (N & !0xffff, 0, 0)),
        (
            "a byte of SIL",
            |a| {
                a.mov(esi, 0xabcd)?;
                a.mov(al, sil)
            },
            (N, 0, 0),
            (N & !0xff | 0xcd, 0, 0),
        ),
        ("add", |a| a.add(rax, rcx), (u64::MAX, 1, 0), (0, 0, CF | ZF | PF | AF)),
        ("add overflows", |a| a.add(rax, rcx), (i64::MAX as u64, 1, 0), (TOP, 0, SF | OF | PF | AF)),
        ("a sign-extended immediate", |a| a.and(rax, -256), (N, 0, 0), (N & !0xff, 0, PF)),
        (
            "sbb borrows",
            |a| {
                a.stc()?;
                a.sbb(rax, rcx)
            },
            (0, u64::MAX, 0),
            (0, 0, CF | ZF | PF | AF),
        ),
        ("mul", |a| a.mul(rcx), (TOP, 4, 9), (0, 2, CF | OF | ZF | PF)),
        ("imul", |a| a.imul(rcx), (u64::MAX, 5, 9), (-5i64 as u64, u64::MAX, SF)),
        ("div", |a| a.div(rcx), (5, 16, 3), ((3 << 60), 5, 0)),
        ("idiv", |a| a.idiv(rcx), (-7i64 as u64, 2, u64::MAX), (-3i64 as u64, u64::MAX, 0)),
        (
            "shl by 33",
            |a| {
                a.mov(cl, 33)?;
                a.shl(rax, cl)
            },
            (1, 0, 0),
            (1 << 33, 0, PF),
        ),
        ("sar", |a| a.sar(rax, 63), (TOP, 0, 0), (u64::MAX, 0, SF | PF)),
        ("rol", |a| a.rol(rax, 4), (N, 0, 0), (N << 4 | 1, 0, CF | OF)),
        ("movsxd", |a| a.movsxd(rax, ecx), (0, 0x8000_0000, 0), (0xffff_ffff_8000_0000, 0, 0)),
        ("cdqe", |a| a.cdqe(), (0x8000_0000, 0, 0), (0xffff_ffff_8000_0000, 0, 0)),
        ("cqo", |a| a.cqo(), (TOP, 0, 0), (TOP, u64::MAX, 0)),
        ("bsr", |a| a.bsr(rax, rcx), (0, 1 << 40, 0), (40, 0, 0)),
        ("bswap", |a| a.bswap(rax), (N, 0, 0), (0x8877_6655_4433_2211, 0, 0)),
        (
            "bts beyond the operand",
            |a| {
                a.bts(qword_ptr(rbx), rcx)?;
                a.mov(rax, qword_ptr(rbx + 8))
            },
            (0, 65, 0),
            (2, 0, 0),
        ),
        (
            "xadd",
            |a| {
                a.mov(qword_ptr(rbx), rcx)?;
                a.xadd(qword_ptr(rbx), rax)?;
                a.mov(rdx, qword_ptr(rbx))
            },
            (2, N, 0),
            (N, N + 2, 0),
        ),
        (
            "cmpxchg that fails leaves a register alone",
            |a| a.cmpxchg(edx, ecx),
            (0, 0, N),
            (0x5566_7788, N, CF | SF | AF | PF),
        ),
        (
            "a pause with REX.B exchanges nothing",
            |a| {
                a.mov(r8, rcx)?;
                a.db(&[0xf3, 0x49, 0x90])?;
                a.mov(rdx, r8)
            },
            (1, N, 0),
            (1, N, 0),
        ),
        (
            "push and pop are 64 bits",
            |a| {
                a.push(-2)?;
                a.pop(rax)?;
                a.mov(rdx, rsp)
            },
            (0, 0, 0),
            (-2i64 as u64, STACK, 0),
        ),
    ]);
}

#[test]
fn addresses_and_jumps() {
    execute(&[
        ("lea with a 32-bit address", |a| a.lea(rax, dword_ptr(ecx + 1)), (0, u64::MAX, 0), (0, 0, 0)),
        (
            "stosq",
            |a| {
                a.mov(rdi, rbx)?;
                a.rep().stosq()?;
                a.mov(rdx, qword_ptr(rbx + 16))
            },
            (N, 3, 0),
            (N, N, 0),
        ),
        (
            "jrcxz",
            |a| {
                let mut l = a.create_label();
                a.jrcxz(l)?;
                a.mov(eax, 1)?;
                a.set_label(&mut l)?;
                a.nop()
            },
            (0, 1 << 32, 0),
            (1, 0, 0),
        ),
        (
            "jecxz",
            |a| {
                // With the move it jumps over.
                a.db(&[0x67, 0xe3, 5, 0xb8, 1, 0, 0, 0])?;
                a.nop()
            },
            (0, 1 << 32, 0),
            (0, 0, 0),
        ),
        ("cmpxchg16b", |a| a.lock().cmpxchg16b(xmmword_ptr(rbx)), (1, 7, 2), (0, 0, 0)),
        (
            "cvtsi2sd",
            |a| {
                a.cvtsi2sd(xmm9, rcx)?;
                a.movq(rax, xmm9)
            },
            (0, 1 << 40, 0),
            (0x4270_0000_0000_0000, 0, 0),
        ),
        (
            "rip-relative",
            |a| {
                let mut l = a.create_label();
                a.lea(rax, ptr(l))?;
                a.set_label(&mut l)?;
                a.nop()
            },
            (0, 0, 0),
            (CODE + 7, 0, 0),
        ),
    ]);
}

/// Executes each row by both tiers.
fn execute(table: &[Row]) {
    for (name, build, before, wanted) in table {
        for first in [true, false] {
            let mut m = machine(build);
            if !first {
                m.compile_nothing();
            }
            let cpu = &mut m.cpus[0];
            (cpu.regs[reg::AX], cpu.regs[reg::CX], cpu.regs[reg::DX]) = *before;
            cpu.flags.set_image(0);
            let count = assemble_count(build);
            assert_eq!(run(&mut m, count), Stop::Budget, "{name}");
            let cpu = &m.cpus[0];
            let flags = cpu.flags.image() & !2;
            let got = (cpu.regs[reg::AX], cpu.regs[reg::DX], flags);
            assert_eq!(got, *wanted, "{name}, first tier: {first}");
        }
    }
}

fn assemble_count(build: &Build) -> u64 {
    let mut a = CodeAssembler::new(64).unwrap();
    build(&mut a).unwrap();
    a.instructions().len() as u64
}

/// Vector, error code and address.
type Fault = (u8, Option<u32>, Option<u64>);

/// Runs what must fault at once, with a value that is not an address in RCX.
fn fault(build: Build) -> Fault {
    let mut m = machine(build);
    m.cpus[0].regs[reg::CX] = NOT_CANONICAL;
    // There is no table of handlers, so what is delivered first is the log's first entry.
    let mut events = Events::all();
    m.run(BSP, &StopSet::after(1), &mut events);
    let mut first = None;
    m.drain(&mut events, |event| {
        if let machine::LogEntry::Happening(_, machine::Happening::Exception { exception, .. }) = event {
            first.get_or_insert(exception);
        }
    });
    let Exception { vector, error, address } = first.expect("a fault");
    (vector, error, address)
}

#[test]
fn faults() {
    let table: &[(&str, Build, Fault)] = &[
        ("not canonical", |a| a.mov(rax, qword_ptr(rcx)), (13, Some(0), None)),
        ("across the edge", |a| a.mov(rax, qword_ptr(rcx - 4)), (13, Some(0), None)),
        ("not canonical on the stack", |a| a.mov(rax, qword_ptr(rsp + rcx)), (12, Some(0), None)),
        ("a jump that is not canonical", |a| a.jmp(rcx), (13, Some(0), None)),
        ("PUSH ES", |a| a.db(&[0x06]), (6, None, None)),
        ("DAA", |a| a.db(&[0x27]), (6, None, None)),
        ("PUSHA", |a| a.db(&[0x60]), (6, None, None)),
        ("far JMP with an immediate", |a| a.db(&[0xea, 0, 0, 0, 0, 8, 0]), (6, None, None)),
        ("RDTSCP is not announced", |a| a.rdtscp(), (6, None, None)),
        ("an odd CMPXCHG16B", |a| a.cmpxchg16b(xmmword_ptr(rbx + 8)), (13, Some(0), None)),
        ("an unknown MSR", |a| a.rdmsr(), (13, Some(0), None)),
    ];
    for (name, build, wanted) in table {
        assert_eq!(fault(*build), *wanted, "{name}");
    }
    let absent = fault(|a| {
        a.db(&[0x48, 0xa1])?;
        a.dq(&[0x100_0000_0000])
    });
    assert_eq!(absent, (14, Some(0), Some(0x100_0000_0000)));
}

fn descriptor(base: u64, limit: u64, access: u64, flags: u64) -> u64 {
    limit & 0xffff | (base & 0xff_ffff) << 16 | access << 40 | flags << 52 | (base >> 24 & 0xff) << 56
}

/// From 32-bit code with paging off into 64-bit code, and into ring 3 and back.
/// Where the parts of [`the_way_in`] are.
mod places {
    pub const GDT: u64 = 0x1000;
    pub const IDT: u64 = 0x2000;
    pub const TSS: u64 = 0x3000;
    pub const TABLES: u64 = 0x4000;
    pub const LONG: u64 = 0x2_0000;
    pub const USER: u64 = 0x3_0000;
    pub const HANDLER: u64 = 0x4_0000;
    pub const ENTRY: u64 = 0x5_0000;
}

/// Descriptors, pages of 2 MiB and interrupts for code of 64 bits.
fn put_tables(m: &mut Machine) {
    use places::*;
    let put = |m: &mut Machine, at: u64, value: u64| m.memory.load(PhysAddr(at), &value.to_le_bytes());
    let entries = [
        0,
        descriptor(0, 0xffff, 0x9b, 0xc | 0xf),
        descriptor(0, 0xffff, 0x93, 0xc),
        descriptor(0, 0, 0x9b, 2),
        descriptor(0, 0xffff, 0xf3, 0xc),
        descriptor(0, 0, 0xfb, 2),
        descriptor(TSS, 0x67, 0x89, 0),
        0xffff_ff80,
    ];
    for (i, entry) in entries.into_iter().enumerate() {
        put(m, GDT + 8 * i as u64, entry);
    }
    // Level four, three (the high half begins where the low one does), two with pages of 2 MiB.
    for (at, entry) in [(0, 0x5007), (8 * 511, 0x5007), (0x1000, 0x6007), (0x2000, 0x87)] {
        put(m, TABLES + at, entry);
    }
    // INT 0x80 for ring 3, on its ring's stack; INT 0x81 on interrupt stack 3.
    for (vector, stack) in [(0x80, 0), (0x81, 3)] {
        put(
            m,
            IDT + 16 * vector,
            HANDLER & 0xffff | 0x18 << 16 | stack << 32 | 0xee00 << 32 | HANDLER >> 16 << 48,
        );
        put(m, IDT + 16 * vector + 8, HIGH >> 32);
    }
    put(m, TSS + 4, 0x8888);
    put(m, TSS + 0x24 + 16, HIGH + 0x9998);
    let table = |m: &mut Machine, at: u64, limit: u16, base: u64| {
        m.memory.load(PhysAddr(at), &limit.to_le_bytes());
        m.memory.load(PhysAddr(at + 2), &base.to_le_bytes());
    };
    table(m, 0x800, 63, GDT);
    table(m, 0x810, 0xfff, HIGH + IDT);
}

/// Code that goes into long mode, from there to ring 3, and from there into the kernel by interrupts and
/// SYSCALL.
fn put_code(m: &mut Machine) {
    use places::*;
    let code = assemble(32, CODE, |a| {
        a.lgdt(fword_ptr(0x800))?;
        a.mov(eax, cr4)?;
        a.or(eax, cr4::PAE as i32)?;
        a.mov(cr4, eax)?;
        a.mov(eax, TABLES as i32)?;
        a.mov(cr3, eax)?;
        a.mov(ecx, 0xc000_0080u32)?;
        a.mov(eax, (efer::LME | efer::SCE | efer::NXE) as i32)?;
        a.xor(edx, edx)?;
        a.wrmsr()?;
        a.mov(eax, cr0)?;
        a.or(eax, cr0::PG as i32)?;
        a.mov(cr0, eax)?;
        a.db(&[0xea])?;
        a.dd(&[LONG as u32])?;
        a.dw(&[0x18])
    });
    m.memory.load(PhysAddr(CODE), &code);
    let code = assemble(64, LONG, |a| {
        a.lidt(fword_ptr(0x810u64))?;
        a.mov(eax, 0x30)?;
        a.ltr(ax)?;
        a.mov(ecx, 0xc000_0081u32)?; // STAR: 0x18 and 0x20 for the kernel; 0x1b + 16, 0x1b + 8 for programs
        a.xor(eax, eax)?;
        a.mov(edx, 0x001b_0018)?;
        a.wrmsr()?;
        a.inc(ecx)?;
        a.mov(eax, ENTRY as i32)?;
        a.mov(edx, (HIGH >> 32) as i32)?;
        a.wrmsr()?;
        a.mov(ecx, 0xc000_0084u32)?;
        a.mov(eax, 0x200)?;
        a.xor(edx, edx)?;
        a.wrmsr()?;
        a.mov(rcx, USER)?;
        a.mov(r11d, 0x202)?;
        a.mov(esp, 0x6000)?;
        a.sysretq()
    });
    m.memory.load(PhysAddr(LONG), &code);
    let code = assemble(64, USER, |a| {
        a.mov(r8, cs)?;
        a.int(0x80)?;
        a.int(0x81)?;
        a.push(7)?;
        a.syscall()?;
        a.pop(rax)
    });
    m.memory.load(PhysAddr(USER), &code);
    m.memory.load(PhysAddr(HANDLER), &assemble(64, HANDLER, |a| a.iretq()));
    m.memory.load(
        PhysAddr(ENTRY),
        &assemble(64, ENTRY, |a| {
            a.swapgs()?;
            a.mov(r9, cs)?;
            a.sysretq()
        }),
    );
}

#[test]
fn the_way_in() {
    use places::*;
    let mut m = Machine::flat32(2 << 20);
    put_tables(&mut m);
    put_code(&mut m);
    let word = |m: &Machine, at: u64| {
        let mut bytes = [0; 8];
        m.memory.read(PhysAddr(at), &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let cpu = &mut m.cpus[0];
    cpu.rip = CODE;
    let to = |m: &mut Machine, at: u64| {
        let stop = m.run(BSP, &StopSet::after(100).at(VirtAddr(at)), &mut Events::off());
        assert_eq!(stop, Stop::Code(VirtAddr(at)));
    };
    to(&mut m, LONG);
    assert_eq!((m.cpus[0].bitness(), m.cpus[0].efer & efer::LMA), (64, efer::LMA));
    to(&mut m, USER);
    assert_eq!(m.cpus[0].cpl(), 3);
    to(&mut m, HIGH + HANDLER);
    let cpu = &m.cpus[0];
    assert_eq!((cpu.cpl(), cpu.seg(Seg::Ss).selector, cpu.regs[reg::SP]), (0, 0, 0x8880 - 40));
    let frame: Vec<u64> = (0..5).map(|i| word(&m, 0x8880 - 40 + 8 * i)).collect();
    assert_eq!(frame, [USER + 5, 0x2b, 0x202, 0x6000, 0x23]);
    m.run(BSP, &StopSet::after(1), &mut Events::off());
    assert_eq!((m.cpus[0].cpl(), m.cpus[0].regs[8]), (3, 0x2b));
    to(&mut m, HIGH + HANDLER);
    assert_eq!(m.cpus[0].regs[reg::SP], HIGH + 0x9990 - 40);
    to(&mut m, HIGH + ENTRY);
    assert_eq!((m.cpus[0].cpl(), m.cpus[0].flags.image(), m.cpus[0].regs[reg::SP]), (0, 2, 0x5ff8));
    to(&mut m, USER + 11);
    m.run(BSP, &StopSet::after(1), &mut Events::off());
    let cpu = &m.cpus[0];
    assert_eq!((cpu.regs[reg::AX], cpu.regs[9], cpu.flags.image()), (7, 0x18, 0x202));
}

/// What each kind of access finds, by the bits of the entry that maps the page.
#[test]
fn page_rights() {
    const TABLES: u64 = 0x4000;
    const PAGE: u64 = 0x100_0000_0000;
    let access: &[(&str, Build)] = &[
        ("read", |a| a.mov(rax, qword_ptr(rbx))),
        ("write", |a| a.mov(qword_ptr(rbx), rax)),
        ("fetch", |a| a.jmp(rbx)),
    ];
    let mut found = Vec::new();
    for (bits, reserved) in
        [(0u64, false), (1, false), (3, false), (5, false), (7, false), (7 | 1 << 63, false), (7, true)]
    {
        let mut row = format!("{bits:x}{}:", if reserved { " reserved" } else { "" });
        for ring in [0, 3] {
            for (_, build) in access {
                let mut m = machine(build);
                let put =
                    |m: &mut Machine, at: u64, value: u64| m.memory.load(PhysAddr(at), &value.to_le_bytes());
                let top = m.cpus[0].cr3;
                for (at, entry) in
                    [(top + 8 * (PAGE >> 39 & 511), 0x4007), (TABLES, 0x5007), (0x5000, 0x6007)]
                {
                    put(&mut m, at, entry | if at == 0x5000 && reserved { 1 << 45 } else { 0 });
                }
                put(&mut m, 0x6000, DATA | bits);
                let cpu = &mut m.cpus[0];
                cpu.regs[reg::BX] = PAGE;
                if ring == 3 {
                    cpu.segments[Seg::Cs as usize] = Segment::long(0x2b, 3);
                    cpu.segments[Seg::Ss as usize] = Segment::flat(0x23, false, 3);
                }
                cpu.idtr = Table::default();
                let mut events = Events::all();
                m.run(BSP, &StopSet::after(2), &mut events);
                let mut first = None;
                m.drain(&mut events, |event| {
                    if let machine::LogEntry::Happening(_, machine::Happening::Exception { exception, .. }) =
                        event
                    {
                        first.get_or_insert(exception);
                    }
                });
                let mut entry = [0];
                m.memory.read(PhysAddr(0x6000), &mut entry);
                row += &match first {
                    Some(Exception { vector: 14, error: Some(error), .. }) => format!(" {error:02x}"),
                    _ if entry[0] & 0x40 != 0 => " AD".to_string(),
                    _ if entry[0] & 0x20 != 0 => " A-".to_string(),
                    other => format!(" {other:?}"),
                };
            }
        }
        found.push(row);
    }
    expect_test::expect![[r#"
        0: 00 02 10 04 06 14
        1: A- 03 A- 05 07 15
        3: A- AD A- 05 07 15
        5: A- 03 A- A- 07 A-
        7: A- AD A- A- AD A-
        8000000000000007: A- AD 11 A- AD 15
        7 reserved: 09 0b 19 0d 0f 1d
    "#]]
    .assert_eq(&(found.join("\n") + "\n"));
}

/// Watched bytes at high addresses end a run, in compiled code too, right after the access.
#[test]
fn watches() {
    let mut m = machine(|a| {
        let mut again = a.create_label();
        a.mov(rdi, HIGH + DATA)?;
        a.set_label(&mut again)?;
        a.add(rdi, 8)?;
        a.mov(qword_ptr(rdi), rax)?;
        a.inc(rcx)?;
        a.jmp(again)
    });
    m.cpus[0].rip += HIGH;
    let watch = Watchpoint { start: VirtAddr(HIGH + DATA + 0x804), bytes: 4, reads: false, writes: true };
    let stop = m.run(BSP, &StopSet::after(100_000).watching(watch), &mut Events::off());
    let Stop::Watchpoint(access) = stop else { panic!("{stop}") };
    assert_eq!(
        (access.address, access.physical),
        (VirtAddr(HIGH + DATA + 0x800), Some(PhysAddr(DATA + 0x800)))
    );
    assert_eq!((m.cpus[0].regs[reg::CX], m.cpus[0].executed), (0xff, 1 + 4 * 0xff + 2));
}

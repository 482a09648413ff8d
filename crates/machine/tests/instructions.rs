//! Instructions as tables: assembly, registers before, registers and flags after.

use iced_x86::code_asm::*;
use machine::x86::flags::{AF, CF, OF, PF, SF, ZF};
use machine::x86::state::reg;
use machine::{Events, Kinds, Machine, Stop, StopSet};
use trace::{CpuId, PhysAddr};

const CODE: u64 = 0x1000;
const DATA: u64 = 0x8000;
const STACK: u64 = 0x7000;
const BSP: CpuId = CpuId(0);

/// A flat machine about to execute what `build` assembles, with `DATA` in EBX and ESI and a stack.
fn machine(build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> (Machine, u64) {
    let mut a = CodeAssembler::new(32).unwrap();
    build(&mut a).unwrap();
    let bytes = a.assemble(CODE).unwrap();
    let mut m = Machine::flat32(1 << 20);
    m.memory.load(PhysAddr(CODE), &bytes);
    let cpu = &mut m.cpus[0];
    cpu.rip = CODE;
    cpu.regs[reg::SP] = STACK;
    cpu.regs[reg::BX] = DATA;
    cpu.regs[reg::SI] = DATA;
    let count = a.instructions().len() as u64;
    (m, count)
}

fn run(m: &mut Machine, count: u64) {
    let stop = m.run(BSP, &StopSet::after(count).on(Kinds::EXCEPTION), &mut Events::off());
    assert_eq!(stop, Stop::Budget);
}

/// Runs with EAX, ECX, EDX and CF set; gives EAX, EDX and the arithmetic flags.
fn binary(
    (ax0, cx0, dx0): (u64, u64, u64),
    carry: bool,
    build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
) -> (u64, u64, u32) {
    let (mut m, count) = machine(build);
    let cpu = &mut m.cpus[0];
    cpu.regs[reg::AX] = ax0;
    cpu.regs[reg::CX] = cx0;
    cpu.regs[reg::DX] = dx0;
    cpu.flags.set_image(if carry { CF } else { 0 });
    run(&mut m, count);
    let cpu = &m.cpus[0];
    (cpu.regs[reg::AX], cpu.regs[reg::DX], cpu.flags.image() & !2)
}

#[test]
fn arithmetic() {
    type Build = fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>;
    type Row = (&'static str, Build, (u64, u64, u64), bool, (u64, u64, u32));
    let table: &[Row] = &[
        ("add", |a| a.add(eax, ecx), (0xffff_ffff, 1, 0), false, (0, 0, CF | ZF | PF | AF)),
        (
            "add overflow",
            |a| a.add(eax, ecx),
            (0x7fff_ffff, 1, 0),
            false,
            (0x8000_0000, 0, SF | OF | PF | AF),
        ),
        ("adc", |a| a.adc(al, cl), (0xff, 0, 0), true, (0, 0, CF | ZF | PF | AF)),
        ("sub", |a| a.sub(ax, cx), (0x1_0000, 1, 0), false, (0x1_ffff, 0, CF | SF | PF | AF)),
        ("sbb", |a| a.sbb(eax, ecx), (5, 4, 0), true, (0, 0, ZF | PF)),
        ("cmp", |a| a.cmp(eax, ecx), (3, 5, 0), false, (3, 0, CF | SF | AF)),
        (
            "inc keeps carry",
            |a| a.inc(eax),
            (0x7fff_ffff, 0, 0),
            true,
            (0x8000_0000, 0, CF | SF | OF | PF | AF),
        ),
        ("dec", |a| a.dec(al), (0x80, 0, 0), false, (0x7f, 0, OF | AF)),
        ("neg", |a| a.neg(eax), (5, 0, 0), false, (0xffff_fffb, 0, CF | SF | AF)),
        ("neg zero", |a| a.neg(eax), (0, 0, 0), true, (0, 0, ZF | PF)),
        ("mul", |a| a.mul(ecx), (0x8000_0000, 4, 9), false, (0, 2, CF | OF | ZF | PF)),
        ("imul", |a| a.imul(ecx), (0xffff_ffff, 5, 9), false, (0xffff_fffb, 0xffff_ffff, SF)),
        ("imul 2", |a| a.imul_2(eax, ecx), (0x10000, 0x10000, 0), false, (0, 0, CF | OF | ZF | PF)),
        ("div", |a| a.div(ecx), (7, 2, 1), false, (0x8000_0003, 1, 0)),
        ("idiv", |a| a.idiv(ecx), (0xffff_fff9, 2, 0xffff_ffff), false, (0xffff_fffd, 0xffff_ffff, 0)),
        ("and", |a| a.and(eax, ecx), (0xf0, 0x3c, 0), true, (0x30, 0, PF)),
        ("xor", |a| a.xor(eax, eax), (0xf0, 0, 0), true, (0, 0, ZF | PF)),
        ("not", |a| a.not(al), (0xf0, 0, 0), true, (0x0f, 0, CF)),
        ("shl", |a| a.shl(eax, cl), (0xc000_0000, 1, 0), false, (0x8000_0000, 0, CF | SF | PF)),
        ("shl by 0", |a| a.shl(eax, cl), (5, 32, 0), true, (5, 0, CF)),
        ("shr", |a| a.shr(eax, 1), (3, 0, 0), false, (1, 0, CF)),
        ("sar", |a| a.sar(eax, cl), (0x8000_0000, 31, 0), false, (0xffff_ffff, 0, SF | PF)),
        ("rol", |a| a.rol(al, cl), (0x81, 1, 0), false, (0x03, 0, CF | OF)),
        ("ror", |a| a.ror(ax, 4), (0x1234, 0, 0), false, (0x4123, 0, OF)),
        ("rcl", |a| a.rcl(al, 1), (0x80, 0, 0), true, (0x01, 0, CF | OF)),
        ("rcr", |a| a.rcr(al, 1), (0x01, 0, 0), true, (0x80, 0, CF | OF)),
        (
            "shld",
            |a| a.shld(eax, edx, 8),
            (0x1234_5678, 0, 0xabcd_ef01),
            false,
            (0x3456_78ab, 0xabcd_ef01, 0),
        ),
        (
            "shrd",
            |a| a.shrd(eax, edx, 8),
            (0x1234_5678, 0, 0xabcd_ef01),
            false,
            (0x0112_3456, 0xabcd_ef01, PF),
        ),
        ("bt", |a| a.bt(eax, ecx), (8, 3, 0), false, (8, 0, CF)),
        ("btc", |a| a.btc(eax, ecx), (8, 35, 0), false, (0, 0, CF)),
        ("bsf", |a| a.bsf(eax, ecx), (1, 0x50, 0), false, (4, 0, 0)),
        ("bsr", |a| a.bsr(eax, ecx), (1, 0x50, 0), false, (6, 0, 0)),
        ("bsf of zero", |a| a.bsf(eax, ecx), (77, 0, 0), false, (77, 0, ZF)),
        ("bswap", |a| a.bswap(eax), (0x1122_3344, 0, 0), false, (0x4433_2211, 0, 0)),
        ("xadd", |a| a.xadd(eax, edx), (1, 0, 2), false, (3, 1, PF)),
        ("cmpxchg equal", |a| a.cmpxchg(edx, ecx), (5, 9, 5), false, (5, 9, ZF | PF)),
        ("cmpxchg other", |a| a.cmpxchg(edx, ecx), (5, 9, 6), false, (6, 6, CF | SF | PF | AF)),
        ("movsx", |a| a.movsx(eax, cl), (0, 0x80, 0), false, (0xffff_ff80, 0, 0)),
        ("movzx", |a| a.movzx(eax, cx), (0, 0xffff_8000, 0), false, (0x8000, 0, 0)),
        ("cdq", |a| a.cdq(), (0x8000_0000, 0, 0), false, (0x8000_0000, 0xffff_ffff, 0)),
        ("cwde", |a| a.cwde(), (0x8000, 0, 0), false, (0xffff_8000, 0, 0)),
        ("cbw", |a| a.cbw(), (0x80, 0, 0), false, (0xff80, 0, 0)),
        ("cwd", |a| a.cwd(), (0x8000, 0, 0), false, (0x8000, 0xffff, 0)),
        ("high byte", |a| a.mov(ah, cl), (0x1111_1111, 0x22, 0), false, (0x1111_2211, 0, 0)),
        (
            "lea",
            |a| a.lea(eax, dword_ptr(edx + ecx * 4 + 8)),
            (0, 3, 0xffff_fff0),
            false,
            (4, 0xffff_fff0, 0),
        ),
        ("cmov", |a| a.cmovb(eax, ecx), (1, 2, 0), true, (2, 0, CF)),
        ("setcc", |a| a.setae(al), (0xff, 2, 0), true, (0, 0, CF)),
        ("lahf", |a| a.lahf(), (0, 0, 0), true, (0x300, 0, CF)),
        ("sahf", |a| a.sahf(), (0xff00, 0, 0), false, (0xff00, 0, CF | PF | AF | ZF | SF)),
        ("daa", |a| a.daa(), (0x9c, 0, 0), false, (0x02, 0, CF | AF)),
        ("aam", |a| a.aam(10), (0x4b, 0, 0), false, (0x0705, 0, PF)),
        ("aad", |a| a.aad(10), (0x0705, 0, 0), false, (0x4b, 0, PF)),
        ("cmc", |a| a.cmc(), (0, 0, 0), true, (0, 0, 0)),
    ];
    let mut wrong = Vec::new();
    for &(name, build, before, carry, after) in table {
        let got = binary(before, carry, build);
        if got != after {
            wrong.push(format!("{name}: got {got:x?}, wanted {after:x?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn memory_operands_and_the_stack() {
    let (mut m, count) = machine(|a| {
        a.mov(dword_ptr(ebx), 0x1234_5678)?;
        a.add(word_ptr(ebx + 2), 1)?;
        a.push(dword_ptr(ebx))?;
        a.push(7)?;
        a.pop(ecx)?;
        a.pop(dword_ptr(ebx + 4))?;
        a.pushad()?;
        a.xor(eax, eax)?;
        a.popad()?;
        a.enter(16, 0)?;
        a.leave()?;
        a.xchg(dword_ptr(ebx), ecx)?;
        a.pushfd()?;
        a.pop(edx)
    });
    run(&mut m, count);
    let cpu = &m.cpus[0];
    assert_eq!(m.memory.read_u32(PhysAddr(DATA)), 7);
    assert_eq!(m.memory.read_u32(PhysAddr(DATA + 4)), 0x1235_5678);
    assert_eq!((cpu.regs[reg::CX], cpu.regs[reg::SP]), (0x1235_5678, STACK));
    assert_eq!(cpu.regs[reg::DX], u64::from(ZF | PF | 2));
}

#[test]
fn string_instructions() {
    let (mut m, _) = machine(|a| {
        a.cld()?;
        a.mov(ecx, 0x1003)?;
        a.rep().movsb()?;
        a.mov(esi, DATA as u32)?;
        a.mov(edi, 0x2_0ff0)?;
        a.mov(ecx, 0x100)?;
        a.repe().cmpsb()?;
        a.hlt()
    });
    let bytes: Vec<u8> = (0..0x1003u32).map(|i| (i * 7) as u8).collect();
    m.memory.write(PhysAddr(DATA), &bytes);
    m.cpus[0].regs[reg::DI] = 0x2_0ff0;
    m.memory.write_u8(PhysAddr(DATA + 0x1002), 0xaa);
    let stop = m.run(BSP, &StopSet::after(100), &mut Events::off());
    assert_eq!(stop, Stop::Halt);
    let mut copy = vec![0; 0x1003];
    m.memory.read(PhysAddr(0x2_0ff0), &mut copy);
    assert_eq!(copy[..0x1002], bytes[..0x1002]);
    assert_eq!(copy[0x1002], 0xaa);
    let cpu = &m.cpus[0];
    assert_eq!((cpu.regs[reg::CX], cpu.regs[reg::SI]), (0, DATA + 0x100));
    // Three stretches for the copy: to the end of the target's page, of the source's page, the rest.
    assert_eq!(cpu.executed, 1 + 1 + 3 + 3 + 2 + 1);
}

#[test]
fn a_repeated_comparison_sets_flags_at_its_end() {
    let (mut m, _) = machine(|a| {
        a.stc()?;
        a.repe().cmpsb()
    });
    m.cpus[0].regs[reg::DI] = 0x2_0ff0;
    m.cpus[0].regs[reg::CX] = 0x20;
    // As far as the end of the target's page.
    run(&mut m, 2);
    assert_eq!((m.cpus[0].regs[reg::CX], m.cpus[0].flags.image() & !2), (0x10, CF));
    run(&mut m, 1);
    assert_eq!((m.cpus[0].regs[reg::CX], m.cpus[0].flags.image() & !2), (0, ZF | PF));
}

#[test]
fn smearing_copies_and_downward_copies() {
    let (mut m, _) = machine(|a| {
        a.lea(edi, dword_ptr(esi + 1))?;
        a.mov(ecx, 15)?;
        a.rep().movsb()?;
        a.std()?;
        a.mov(esi, (DATA + 15) as u32)?;
        a.mov(edi, (DATA + 31) as u32)?;
        a.mov(ecx, 4)?;
        a.rep().movsd()?;
        a.hlt()
    });
    m.memory.write(PhysAddr(DATA), &[9, 1, 2, 3]);
    assert_eq!(m.run(BSP, &StopSet::after(100), &mut Events::off()), Stop::Halt);
    let mut row = [0; 34];
    m.memory.read(PhysAddr(DATA), &mut row);
    assert_eq!(row[..16], [9; 16]);
    assert_eq!(row[19..34], [&[9; 13][..], &[0; 2]].concat());
}

#[test]
fn calls_loops_and_branches() {
    let (mut m, _) = machine(|a| {
        let mut function = a.create_label();
        let mut again = a.create_label();
        a.mov(ecx, 10)?;
        a.xor(eax, eax)?;
        a.set_label(&mut again)?;
        a.call(function)?;
        a.dec(ecx)?;
        a.jnz(again)?;
        a.hlt()?;
        a.set_label(&mut function)?;
        a.add(eax, ecx)?;
        a.ret()
    });
    assert_eq!(m.run(BSP, &StopSet::after(1000), &mut Events::off()), Stop::Halt);
    assert_eq!((m.cpus[0].regs[reg::AX], m.cpus[0].executed), (55, 2 + 10 * 5 + 1));
}

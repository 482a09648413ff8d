//! Corners of the ways between rings and code segments in long mode: IRET, SYSCALL and SYSRET, interrupt
//! stacks, call gates, null stack segments, single steps.
//!
//! Source: Intel's manual, volume 2, the pseudo-code of each instruction; volume 3, section 6.14.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use machine::x86::state::{Segment as Hidden, Table, reg};
use machine::{Events, Kinds, Machine, Seg, Segment, Stop, StopSet};
use trace::{CpuId, PhysAddr};

const BSP: CpuId = CpuId(0);
const GDT: u64 = 0x1000;
const IDT: u64 = 0x2000;
const TSS: u64 = 0x3000;
const HANDLERS: u64 = 0x4000;
const CODE: u64 = 0x1_0000;
/// What programs come to: UD2.
const USER: u64 = 0x2_0000;
const RING_STACK: u64 = 0x7008;
const INTERRUPT_STACK: u64 = 0x8018;
const STACK: u64 = 0x6000;
const NOT_CANONICAL: u64 = 0x8000_0000_0000;

const KERNEL: u16 = 0x08;
const USER_32: u16 = 0x1b;
const USER_DATA: u16 = 0x23;
const USER_64: u16 = 0x2b;
const CALL_GATE: u16 = 0x40;
const LONG_AND_BIG: u16 = 0x50;
const ABSENT: u16 = 0x58;

fn descriptor(base: u64, limit: u64, access: u64, flags: u64) -> u64 {
    limit & 0xffff | (base & 0xff_ffff) << 16 | access << 40 | flags << 52 | (base >> 24 & 0xff) << 56
}

fn put(m: &mut Machine, at: u64, value: u64) {
    m.memory.load(PhysAddr(at), &value.to_le_bytes());
}

/// About to execute `build` in ring 0, with a handler that halts for every vector. 0x81 has an interrupt
/// stack.
fn machine(build: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Machine {
    let mut m = Machine::flat64(2 << 20);
    let entries = [
        0,
        descriptor(0, 0, 0x9b, 2),
        descriptor(0, 0xffff, 0x93, 0xc),
        descriptor(0, 0xffff, 0xfb, 0xc) | 0xf << 48,
        descriptor(0, 0xffff, 0xf3, 0xc),
        descriptor(0, 0, 0xfb, 2),
        descriptor(TSS, 0x67, 0x89, 0),
        0,
        USER & 0xffff | u64::from(KERNEL) << 16 | 0xec00 << 32 | USER >> 16 << 48,
        0,
        descriptor(0, 0, 0x9b, 6),
        descriptor(0, 0, 0x7b, 2),
    ];
    for (i, entry) in entries.into_iter().enumerate() {
        put(&mut m, GDT + 8 * i as u64, entry);
    }
    for vector in 0..256 {
        let at = HANDLERS + 16 * vector;
        let stack = if vector == 0x81 { 1 } else { 0 };
        put(&mut m, IDT + 16 * vector, at & 0xffff | u64::from(KERNEL) << 16 | (0xee00 | stack) << 32);
        m.memory.load(PhysAddr(at), &[0xf4]);
    }
    put(&mut m, TSS + 4, RING_STACK);
    put(&mut m, TSS + 0x24, INTERRUPT_STACK);
    let mut a = CodeAssembler::new(64).unwrap();
    build(&mut a).unwrap();
    m.memory.load(PhysAddr(CODE), &a.assemble(CODE).unwrap());
    m.memory.load(PhysAddr(USER), &[0x0f, 0x0b]);
    let cpu = &mut m.cpus[0];
    cpu.gdtr = Table { base: GDT, limit: 0xff };
    cpu.idtr = Table { base: IDT, limit: 0xfff };
    cpu.tr = Hidden { selector: 0x30, base: TSS, limit: 0x67, attributes: 0x8b };
    cpu.rip = CODE;
    cpu.regs[reg::SP] = STACK;
    cpu.flags.set_image(2);
    cpu.msrs.star = 0x001b_0008 << 32;
    cpu.msrs.lstar = USER;
    m
}

/// Runs to the halt, in each tier, and tells what was pushed for the handler that it is in.
fn outcome(mut m: Machine) -> String {
    let mut second = m.clone();
    second.compile_nothing();
    let text = ended(&mut m);
    assert_eq!(text, ended(&mut second), "the tiers");
    text
}

fn ended(m: &mut Machine) -> String {
    let stop = m.run(BSP, &StopSet::after(100).on(Kinds::HALT), &mut Events::off());
    let cpu = &m.cpus[0];
    if stop != Stop::Halt || !(HANDLERS..HANDLERS + 0x1000).contains(&cpu.rip) {
        return format!("{stop} at {:x}", cpu.rip);
    }
    let vector = (cpu.rip - HANDLERS) / 16;
    let has_error = matches!(vector, 8 | 10..=14 | 17);
    let top = cpu.regs[reg::SP];
    let word = |i: u64| {
        let mut bytes = [0; 8];
        m.memory.read(PhysAddr(top + 8 * i), &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let error = if has_error { format!("({:x})", word(0)) } else { String::new() };
    let first = u64::from(has_error);
    let frame: [u64; 5] = std::array::from_fn(|i| word(first + i as u64));
    let [offset, code, flags, old_top, stack] = frame;
    format!(
        "#{vector}{error} from {code:x}:{offset:x} flags {flags:x} stack {stack:x}:{old_top:x}, handled with {:x}:{top:x}",
        cpu.seg(Seg::Ss).selector
    )
}

/// IRETQ to this frame.
fn iret(frame: [u64; 5]) -> String {
    outcome(machine(|a| {
        for word in frame {
            a.mov(rax, word)?;
            a.push(rax)?;
        }
        a.iretq()
    }))
}

#[test]
fn returns_from_interrupts() {
    let user = |selector: u16, data: u16| [u64::from(data), 0x5000, 2, u64::from(selector), USER];
    let mut not_canonical = user(USER_64, USER_DATA);
    not_canonical[4] = NOT_CANONICAL;
    let mut stepping = user(USER_64, USER_DATA);
    stepping[2] = 0x102;
    let table: &[(&str, [u64; 5])] = &[
        ("to ring 3", user(USER_64, USER_DATA)),
        ("to 32-bit code", user(USER_32, USER_DATA)),
        ("to ring 0 with its null stack segment", user(KERNEL, 0)),
        ("to ring 0 with another null stack segment", user(KERNEL, 3)),
        ("to ring 3 without a stack segment", user(USER_64, 3)),
        ("to 32-bit code without a stack segment", user(USER_32, 0)),
        ("to ring 3 with a stack segment of ring 0", user(USER_64, 0x10)),
        ("to no code segment", user(0, USER_DATA)),
        ("to a code segment both 64-bit and 32-bit", user(LONG_AND_BIG, 0)),
        ("to an absent code segment", user(ABSENT | 3, USER_DATA)),
        ("to what is no address", not_canonical),
        ("to a single step", stepping),
    ];
    let found: Vec<String> =
        table.iter().map(|(name, frame)| format!("{name}: {}\n", iret(*frame))).collect();
    expect_test::expect![[r#"
        to ring 3: #6 from 2b:20000 flags 10002 stack 23:5000, handled with 0:6fd8
        to 32-bit code: #6 from 1b:20000 flags 10002 stack 23:5000, handled with 0:6fd8
        to ring 0 with its null stack segment: #6 from 8:20000 flags 10002 stack 0:5000, handled with 0:4fd8
        to ring 0 with another null stack segment: #13(0) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to ring 3 without a stack segment: #13(0) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to 32-bit code without a stack segment: #13(0) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to ring 3 with a stack segment of ring 0: #13(10) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to no code segment: #13(0) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to a code segment both 64-bit and 32-bit: #13(50) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to an absent code segment: #11(58) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to what is no address: #13(0) from 8:10037 flags 10002 stack 10:5fd8, handled with 10:5fa0
        to a single step: #6 from 2b:20000 flags 10102 stack 23:5000, handled with 0:6fd8
    "#]].assert_eq(&found.concat());
}

#[test]
fn system_calls() {
    type Build = fn(&mut CodeAssembler) -> Result<(), IcedError>;
    const TF: u32 = 0x100;
    let run = |build: Build, flags: u32, mask: u64, change: fn(&mut machine::x86::state::Cpu)| {
        let mut m = machine(build);
        let cpu = &mut m.cpus[0];
        cpu.flags.set_image(2 | flags);
        cpu.msrs.sfmask = mask;
        cpu.regs[reg::CX] = USER;
        cpu.regs[11] = 2;
        change(cpu);
        outcome(m)
    };
    let nothing = |_: &mut machine::x86::state::Cpu| {};
    let ring3 = |cpu: &mut machine::x86::state::Cpu| {
        cpu.segments[Seg::Cs as usize] = Segment::long(USER_64, 3);
        cpu.segments[Seg::Ss as usize] = Segment::flat(USER_DATA, false, 3);
    };
    let found = [
        ("a call", run(|a| a.syscall(), 0, 0, ring3)),
        ("a call that masks the single step", run(|a| a.syscall(), TF, TF.into(), ring3)),
        ("a call that keeps the single step", run(|a| a.syscall(), TF, 0, ring3)),
        ("a call that is switched off", run(|a| a.syscall(), 0, 0, |cpu| cpu.efer &= !1)),
        ("a return", run(|a| a.sysretq(), 0, 0, nothing)),
        ("a return to 32-bit code", run(|a| a.sysret(), 0, 0, nothing)),
        ("a return in ring 3", run(|a| a.sysretq(), 0, 0, ring3)),
        (
            "a return to what is no address",
            run(|a| a.sysretq(), 0, 0, |cpu| cpu.regs[reg::CX] = NOT_CANONICAL),
        ),
        ("a return that single-steps", run(|a| a.sysretq(), 0, 0, |cpu| cpu.regs[11] = 0x102)),
        ("SWAPGS in ring 3", run(|a| a.swapgs(), 0, 0, ring3)),
        ("a single step", run(|a| a.nop(), TF, 0, nothing)),
    ];
    let found: Vec<String> = found.iter().map(|(name, text)| format!("{name}: {text}\n")).collect();
    expect_test::expect![[r#"
        a call: #6 from 8:20000 flags 10002 stack 10:6000, handled with 10:5fd8
        a call that masks the single step: #6 from 8:20000 flags 10002 stack 10:6000, handled with 10:5fd8
        a call that keeps the single step: #1 from 8:20000 flags 102 stack 10:6000, handled with 10:5fd8
        a call that is switched off: #6 from 8:10000 flags 10002 stack 10:6000, handled with 10:5fd8
        a return: #6 from 2b:20000 flags 10002 stack 23:6000, handled with 0:6fd8
        a return to 32-bit code: #6 from 1b:20000 flags 10002 stack 23:6000, handled with 0:6fd8
        a return in ring 3: #13(0) from 2b:10000 flags 10002 stack 23:6000, handled with 0:6fd0
        a return to what is no address: #13(0) from 8:10000 flags 10002 stack 10:6000, handled with 10:5fd0
        a return that single-steps: #1 from 2b:20000 flags 102 stack 23:6000, handled with 0:6fd8
        SWAPGS in ring 3: #13(0) from 2b:10000 flags 10002 stack 23:6000, handled with 0:6fd0
        a single step: #1 from 8:10001 flags 102 stack 10:6000, handled with 10:5fd8
    "#]]
    .assert_eq(&found.concat());
}

#[test]
fn stacks_and_gates() {
    let in_ring_3 = |mut m: Machine| {
        let cpu = &mut m.cpus[0];
        cpu.segments[Seg::Cs as usize] = Segment::long(USER_64, 3);
        cpu.segments[Seg::Ss as usize] = Segment::flat(USER_DATA, false, 3);
        outcome(m)
    };
    let mut odd = machine(|a| a.int(0x80));
    odd.cpus[0].regs[reg::SP] = STACK + 5;
    let mut lost = machine(|a| a.int(0x80));
    lost.cpus[0].regs[reg::SP] = NOT_CANONICAL;
    let mut lost_in_ring_3 = machine(|a| a.push(rax));
    lost_in_ring_3.cpus[0].regs[reg::SP] = NOT_CANONICAL + 16;
    let mut small = machine(|a| a.int(0x81));
    small.cpus[0].tr.limit = 0x2a;
    let far_call: fn(&mut CodeAssembler) -> Result<(), IcedError> = |a| {
        a.mov(eax, i32::from(CALL_GATE))?;
        a.push(rax)?;
        a.push(0)?;
        // call far [rsp + 4]: four bytes that do not count, and the selector
        a.db(&[0xff, 0x5c, 0x24, 4])
    };
    let found = [
        ("INT on a stack that is not aligned", outcome(odd)),
        ("INT on its own stack in the same ring", outcome(machine(|a| a.int(0x81)))),
        ("INT on its own stack from ring 3", in_ring_3(machine(|a| a.int(0x81)))),
        ("INT on a stack that is no address", outcome(lost)),
        ("PUSH to what is no address in ring 3", in_ring_3(lost_in_ring_3)),
        ("a task state segment too short for its stack", outcome(small)),
        ("a call gate from ring 3", in_ring_3(machine(far_call))),
        ("a call gate in ring 0", outcome(machine(far_call))),
        ("a null stack segment in ring 0", {
            outcome(machine(|a| {
                a.xor(eax, eax)?;
                a.mov(ss, eax)?;
                a.push(rax)?;
                a.ud2()
            }))
        }),
        ("another ring's null stack segment", {
            outcome(machine(|a| {
                a.mov(eax, 3)?;
                a.mov(ss, eax)
            }))
        }),
        ("a null stack segment in ring 3", {
            in_ring_3(machine(|a| {
                a.xor(eax, eax)?;
                a.mov(ss, eax)
            }))
        }),
        ("leaving long mode from 64-bit code", {
            outcome(machine(|a| {
                a.mov(rax, cr0)?;
                a.btr(rax, 31)?;
                a.mov(cr0, rax)
            }))
        }),
        ("switching PAE off in long mode", {
            outcome(machine(|a| {
                a.mov(rax, cr4)?;
                a.btr(rax, 5)?;
                a.mov(cr4, rax)
            }))
        }),
    ];
    let found: Vec<String> = found.iter().map(|(name, text)| format!("{name}: {text}\n")).collect();
    expect_test::expect![[r#"
        INT on a stack that is not aligned: #128 from 8:10002 flags 2 stack 10:6005, handled with 10:5fd8
        INT on its own stack in the same ring: #129 from 8:10002 flags 2 stack 10:6000, handled with 10:7fe8
        INT on its own stack from ring 3: #129 from 2b:10002 flags 2 stack 23:6000, handled with 0:7fe8
        INT on a stack that is no address: triple fault at 10000
        PUSH to what is no address in ring 3: #12(0) from 2b:10000 flags 10002 stack 23:800000000010, handled with 0:6fd0
        a task state segment too short for its stack: #10(30) from 8:10000 flags 10002 stack 10:6000, handled with 10:5fd0
        a call gate from ring 3: #6 from 8:20000 flags 10002 stack 0:6fe8, handled with 0:6fb8
        a call gate in ring 0: #6 from 8:20000 flags 10002 stack 10:5fe0, handled with 10:5fb8
        a null stack segment in ring 0: #6 from 8:10005 flags 10046 stack 0:5ff8, handled with 0:5fc8
        another ring's null stack segment: #13(0) from 8:10005 flags 10002 stack 10:6000, handled with 10:5fd0
        a null stack segment in ring 3: #13(0) from 2b:10002 flags 10046 stack 23:6000, handled with 0:6fd0
        leaving long mode from 64-bit code: #13(0) from 8:10008 flags 10003 stack 10:6000, handled with 10:5fd0
        switching PAE off in long mode: #13(0) from 8:10008 flags 10003 stack 10:6000, handled with 10:5fd0
    "#]].assert_eq(&found.concat());
}

/// RIP wraps at the end of the address space, in blocks of any length before it.
#[test]
fn over_the_end() {
    const GIGABYTE: u64 = 1 << 30;
    for count in [1, 2, 5, 40] {
        for code in [&[0x90][..], &[0x39, 0xc0, 0x74, 0x00], &[0x50], &[0x48, 0x8b, 0x05, 0, 0, 0, 0]] {
            let mut seen = Vec::new();
            for first in [true, false] {
                let mut m = Machine::flat64(GIGABYTE + 0x1_0000);
                let table = m.memory.size() - 0x1000;
                for i in [0, 511] {
                    put(&mut m, table + 8 * i, 0x87);
                }
                let bytes = code.repeat(count);
                let start = GIGABYTE - bytes.len() as u64;
                m.memory.load(PhysAddr(start), &bytes);
                m.memory.load(PhysAddr(0), &[0xff, 0xc3, 0xf4]);
                if !first {
                    m.compile_nothing();
                }
                let cpu = &mut m.cpus[0];
                cpu.rip = (bytes.len() as u64).wrapping_neg();
                cpu.regs[reg::SP] = STACK;
                let stop = m.run(BSP, &StopSet::after(1000).on(Kinds::HALT), &mut Events::all());
                seen.push((stop, m.cpus[0].clone()));
            }
            assert_eq!(
                (seen[0].1.rip, seen[0].1.regs[reg::BX]),
                (3, 1),
                "{code:x?}, {count} times: {}",
                seen[0].0
            );
            assert!(seen[0] == seen[1], "the tiers differ after {code:x?}, {count} times");
        }
    }
}

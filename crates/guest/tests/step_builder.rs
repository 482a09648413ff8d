//! Steps of machines of which nothing is known: no hooks, no description, several processors, 64-bit code.

use guest::driving::recorder::{Recorder, Scope};
use guest::driving::step_builder::{StepBuilder, Stretch};
use guest::state::Architecture;
use machine::{Kinds, Machine, Stop, StopSet};
use std::fmt::Write as _;
use std::sync::Arc;
use trace::{CpuId, PhysAddr, Step, StepEnd, ThreadId};

/// `lock inc dword [rip + 0xff9]`, which is 0x1000 bytes from the beginning; `push rax`; `hlt`.
const COUNTS: &[u8] = &[0xf0, 0xff, 0x05, 0xf9, 0x0f, 0x00, 0x00, 0x50, 0xf4];
/// `mov eax, [rip + 0xeea]`, the same word for code that is 0x110 bytes further; `mov [rip + 0xee8], eax`,
/// the next word but one; `hlt`.
const COPIES: &[u8] = &[0x8b, 0x05, 0xea, 0x0e, 0x00, 0x00, 0x89, 0x05, 0xec, 0x0e, 0x00, 0x00, 0xf4];

/// Runs a processor until it halts.
fn step(machine: &mut Machine, builder: &mut StepBuilder, cpu: CpuId) -> Step {
    let thread = ThreadId(u32::from(cpu.0));
    builder.begin(cpu, Some(thread));
    let before = machine.instructions();
    let stop = machine.run(cpu, &StopSet::after(100).on(Kinds::HALT), &mut builder.log);
    assert_eq!(stop, Stop::Halt);
    builder.take_log(machine, &Stretch::by(thread));
    let instructions = machine.instructions() - before;
    builder.finish(thread.into(), StepEnd::Finished, instructions, Vec::new())
}

fn text(step: &Step) -> String {
    let mut text = format!("{}, {} instructions", step.thread, step.instructions);
    for access in &step.accesses {
        let atomic = if access.atomic { " at once" } else { "" };
        _ = write!(text, "; {:x} {} {:x}{atomic}", access.pc.0, access.kind.verb(), access.phys.0);
    }
    text
}

#[test]
fn two_processors_of_a_machine_without_a_description_take_steps_that_conflict() {
    let mut machine = Machine::flat64(1 << 20);
    machine.memory.write(PhysAddr(0), COUNTS);
    machine.memory.write(PhysAddr(0x110), COPIES);
    machine.cpus.push(machine.cpus[0].clone());
    machine.cpus[0].regs[4] = 0x8000;
    machine.cpus[1].rip = 0x110;
    let mut builder = StepBuilder::new(Recorder::new(Arc::new(Scope::everything()), Architecture::X86_64));
    let first = step(&mut machine, &mut builder, CpuId(0));
    let second = step(&mut machine, &mut builder, CpuId(1));
    expect_test::expect![[r#"
        t0, 3 instructions; 0 updates 1000 at once
        t1, 3 instructions; 110 reads 1000; 116 writes 1008"#]]
    .assert_eq(&format!("{}\n{}", text(&first), text(&second)));
    assert!(first.accesses[0].conflicts(&second.accesses[0]));
}

/// `mov eax, [0x1000]`; `mov [0x1008], eax`; `hlt`, in 32-bit code.
const COPIES_32: &[u8] = &[0xa1, 0x00, 0x10, 0x00, 0x00, 0xa3, 0x08, 0x10, 0x00, 0x00, 0xf4];

#[test]
fn who_reaches_out_of_what_is_tested_depends_on_the_page_table() {
    let mut machine = Machine::flat32(1 << 20);
    machine.memory.write(PhysAddr(0x110), COPIES_32);
    // One large page, which the first entry of the page directory at 0x2000 maps.
    machine.memory.write(PhysAddr(0x2000), &0x83u32.to_le_bytes());
    let cpu = &mut machine.cpus[0];
    (cpu.rip, cpu.cr3, cpu.cr4) = (0x110, 0x2000, cpu.cr4 | 1 << 4);
    cpu.cr0 |= 1 << 31;
    // The code is under test, and the words that it copies are not.
    let scope = Scope { tested: std::iter::once(0..0x1000).collect(), ..Scope::everything() };
    let mut builder = StepBuilder::new(Recorder::new(Arc::new(scope), Architecture::X86));
    let step = step(&mut machine, &mut builder, CpuId(0));
    expect_test::expect![[r#"
        t0, 3 instructions; 110 reads 1000; 115 writes 1008; 110 reads 2000; 115 reads 2000"#]]
    .assert_eq(&text(&step));
}

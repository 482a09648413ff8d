//! What a processor looked like when it could not go on, and how it got there.

use std::fmt::Write;

use machine::{Cpu, Events, Machine, Seg, StopSet};
use trace::CpuId;

/// How many branches are shown.
const BRANCHES: usize = 16;
/// How many instructions are looked back over to find branches.
const LOOK_BACK: u64 = 20_000;
/// Bytes of the longest instruction: whatever goes further than this is a branch.
const INSTRUCTION_BYTES_MAX: u64 = 15;

pub fn registers(cpu: &Cpu) -> String {
    let mut text = String::new();
    let names = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
    for (index, name) in names.iter().enumerate() {
        let _ = write!(text, "  {name} {:08x}", cpu.regs[index] as u32);
        if index % 4 == 3 {
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "  eip {:08x}  eflags {:08x}  cr0 {:08x}  cr2 {:08x}  cr3 {:08x}  cr4 {:08x}  ring {}",
        cpu.rip,
        cpu.flags.image(),
        cpu.cr0,
        cpu.cr2,
        cpu.cr3,
        cpu.cr4,
        cpu.cpl()
    );
    for (seg, name) in
        [(Seg::Cs, "cs"), (Seg::Ss, "ss"), (Seg::Ds, "ds"), (Seg::Es, "es"), (Seg::Fs, "fs"), (Seg::Gs, "gs")]
    {
        let _ = write!(text, "  {name} {:04x}", cpu.seg(seg).selector);
    }
    let _ = writeln!(
        text,
        "\n  gdt {:08x}+{:04x}  idt {:08x}+{:04x}  tr {:04x}",
        cpu.gdtr.base, cpu.gdtr.limit, cpu.idtr.base, cpu.idtr.limit, cpu.tr.selector
    );
    text
}

/// Executes the last instructions before a stop once more, one by one, and lists the branches among them.
/// `machine` is a copy from before the run, which ended after `instructions` of it.
pub fn last_branches(mut machine: Machine, cpu: CpuId, instructions: u64) -> String {
    let mut events = Events::off();
    let skipped = instructions.saturating_sub(LOOK_BACK);
    machine.run(cpu, &StopSet::after(skipped), &mut events);
    let one = StopSet::after(1);
    let mut branches = Vec::new();
    for _ in skipped..instructions {
        let from = machine.cpu(cpu).pc();
        machine.run(cpu, &one, &mut events);
        let to = machine.cpu(cpu).pc();
        if !(from..=from + INSTRUCTION_BYTES_MAX).contains(&to) {
            branches.push((from, to));
        }
    }
    let mut text = String::new();
    for (from, to) in branches.iter().rev().take(BRANCHES).rev() {
        let _ = writeln!(text, "  {from:08x} -> {to:08x}");
    }
    text
}

//! The full trace of an execution: every instruction with its context, what it changed in registers, and its
//! accesses.
//!
//! The execution is played from its tape on the machine alone, one instruction at a time, so that looking
//! does not change it.
//!
//! A line is the number of the instruction, the processor and who runs on it, the address, the function and,
//! where it is known, the source line; then what changed in registers, and the accesses. What happens before
//! the instruction, such as an interrupt, stands with it:
//!
//! ```text
//! 17 cpu1 append[88] ring 0 0xffffffff81a2c3d1 _raw_spin_lock: rax=0x1 | read+write 4 at 0xffff888003a10058 locked
//! ```

use machine::{Events, Happening, LogEntry, Machine, Playback, Played, StopSet, Tape};
use std::fmt::Write as _;
use trace::{AccessKind, CpuId, Resolve, VirtAddr};

const REGISTERS_32: [&str; 8] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
const REGISTERS_64: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// Who runs on a processor, as far as it is known.
pub type Who<'a> = &'a dyn Fn(&Machine, CpuId) -> Option<String>;

/// Plays a tape on the machine that it began with. An error says where it leads elsewhere.
pub fn trace(
    mut machine: Machine,
    tape: &Tape,
    until: &StopSet,
    names: &dyn Resolve,
    who: Who<'_>,
) -> Result<String, String> {
    let mut playback = Playback::new(tape);
    let mut log = Events::off();
    (log.accesses, log.happenings) = (true, true);
    let one = StopSet { instructions: Some(1), ..until.clone() };
    let mut out = String::new();
    let mut number = 0_u64;
    loop {
        let before = machine.cpus.clone();
        let played = playback.go(&mut machine, &one, &mut log);
        if let Played::Diverged(cpu, stop) = played {
            return Err(format!("after {number} instructions {cpu} does something else: {stop}"));
        }
        let mut did = String::new();
        machine.drain(&mut log, |entry| write_entry(&entry, &mut did));
        for (id, old) in (0_u8..).zip(&before) {
            let cpu = CpuId(id);
            let new = machine.cpu(cpu);
            if new.executed == old.executed {
                continue;
            }
            number += 1;
            let task = who(&machine, cpu).map(|task| format!(" {task}")).unwrap_or_default();
            let pc = VirtAddr(old.pc());
            let _ = write!(out, "{number} {cpu}{task} ring {} {pc}{}:", old.cpl(), place(names, pc));
            let wide = old.bitness() == 64;
            let name = |register: usize| if wide { REGISTERS_64[register] } else { REGISTERS_32[register] };
            for register in (0..if wide { 16 } else { 8 }).filter(|&r| old.regs[r] != new.regs[r]) {
                let _ = write!(out, " {}={:#x}", name(register), new.regs[register]);
            }
            if old.cpl() != new.cpl() {
                let _ = write!(out, " ring={}", new.cpl());
            }
            if old.cr3 != new.cr3 {
                let _ = write!(out, " cr3={:#x}", new.cr3);
            }
            out += &did;
            out.push('\n');
        }
        if played == Played::End {
            return Ok(out);
        }
    }
}

/// The function that an instruction is in, and its line of the source, as far as they are known.
fn place(names: &dyn Resolve, pc: VirtAddr) -> String {
    let frames = names.frames(pc);
    let function = frames.last().and_then(|frame| frame.function.as_ref());
    let line = frames.first().and_then(|frame| Some((frame.file.as_ref()?, frame.line?)));
    let mut place = function.map(|function| format!(" {function}")).unwrap_or_default();
    if let Some((file, line)) = line {
        let _ = write!(place, " {}:{line}", file.rsplit('/').next().unwrap_or(file));
    }
    place
}

fn write_entry(entry: &LogEntry, out: &mut String) {
    let _ = match entry {
        LogEntry::Access(access) => {
            let how = match access.kind {
                AccessKind::Read => "read",
                AccessKind::Write => "write",
                AccessKind::Update => "read+write",
            };
            let locked = if access.atomic { " locked" } else { "" };
            write!(out, " | {how} {} at {}{locked}", access.size, access.address)
        }
        LogEntry::Happening(_, Happening::Interrupt { vector, .. }) => write!(out, " | interrupt {vector}"),
        LogEntry::Happening(..) | LogEntry::Walk(_) => Ok(()),
    };
}

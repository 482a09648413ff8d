//! Runs a guest in plain QEMU (TCG) and measures its phases.
//!
//! The guest halts at the end of each phase until a byte arrives on the serial line. While it is halted QEMU
//! uses no processor time, so the time between two halts is what QEMU needed for the phase; start-up,
//! firmware and scheduling by the host are not in it.

use crate::cpu_time::CpuClock;
use crate::phase::{Halt, Phase, phases};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// QEMU, where there is one.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    /// What it says of itself.
    pub version: String,
}

impl Qemu {
    /// The installed one for 32-bit or 64-bit guests, or one unpacked under `target/qemu`.
    pub fn find(long: bool) -> Option<Self> {
        let name = if long { "qemu-system-x86_64" } else { "qemu-system-i386" };
        let unpacked = std::env::current_exe()
            .ok()
            .and_then(|program| Some(program.parent()?.parent()?.join("qemu/usr/bin").join(name)));
        let candidates = [Some(PathBuf::from(name)), unpacked];
        candidates.into_iter().flatten().find_map(|program| {
            let output = Command::new(&program).arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.lines().next()?.trim_start_matches("QEMU emulator version ").to_owned();
            output.status.success().then_some(Self { program, version })
        })
    }

    /// Boots `kernel` and lets it run to its end.
    pub fn run(&self, kernel: &Path, repeat: u32) -> Result<Vec<Phase>, String> {
        let mut child = Command::new(&self.program)
            .args(["-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-serial", "stdio", "-append", &format!("repeat={repeat}"), "-kernel"])
            .arg(kernel)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|e| format!("{}: {e}", self.program.display()))?;
        let clock = CpuClock::of(child.id())?;
        let mut input = child.stdin.take().ok_or("QEMU has no input")?;
        let mut output = child.stdout.take().ok_or("QEMU has no output")?;
        let mut halts = Vec::new();
        let mut report = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).map_err(|e| format!("QEMU's output: {e}"))? == 1 {
            if byte[0] != b'.' {
                report.push(byte[0]);
                continue;
            }
            let halt = Halt { time: idle(clock)?, instructions: None };
            halts.push((halt, halt));
            input.write_all(b"g").and_then(|()| input.flush()).map_err(|e| format!("QEMU's input: {e}"))?;
        }
        let status = child.wait().map_err(|e| format!("QEMU: {e}"))?;
        if !status.success() {
            return Err(format!("QEMU ended with {status}"));
        }
        phases(&String::from_utf8_lossy(&report), &halts)
    }
}

/// The clock's value once it stands still: the guest may have a few instructions to go to its halt.
fn idle(clock: CpuClock) -> Result<std::time::Duration, String> {
    let mut last = clock.now()?;
    loop {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let now = clock.now()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

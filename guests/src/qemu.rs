//! Runs an image in QEMU, to have another opinion of what it prints.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether `qemu-system-i386` can be started.
#[must_use]
pub fn is_there() -> bool {
    Command::new("qemu-system-i386").arg("--version").output().is_ok()
}

/// Boots a kernel with a command line and something typed on the serial port, until it turns the machine off
/// or the time is up; returns what it printed on the serial port.
pub fn run(kernel: &Path, command_line: &str, input: &str, seconds_max: u32) -> std::io::Result<String> {
    let mut qemu = Command::new("timeout")
        .args([&seconds_max.to_string(), "qemu-system-i386", "-kernel"])
        .arg(kernel)
        .args([
            "-append",
            command_line,
            "-m",
            "32",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-monitor",
            "none",
        ])
        .args(["-no-reboot", "-net", "none"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(stdin) = &mut qemu.stdin {
        stdin.write_all(input.as_bytes())?;
    }
    let output = qemu.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

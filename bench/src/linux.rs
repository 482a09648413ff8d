//! Debian's Linux kernel: what a boot to the helper takes and what that time is made of, beside plain QEMU on
//! the same kernel, command line and file system; what a saved machine costs to load, and a booted one to
//! clone.
//!
//! Times are processor times. The kernel is unpacked on the host, by us at every boot and once for QEMU,
//! which enters the same ELF file directly (by its PVH note), so neither executes the decompressor. QEMU's
//! instructions are not counted: its speed is our count over its time, for a boot that does the same but for
//! devices that only QEMU has.

use crate::cpu_time::CpuClock;
use crate::table::{Table, Target, median};
use guest::hooks::annotation::{Annotation, decode};
use guest::view::{View, registers};
use guests::linux::{Debian, Pack, sources};
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format, Module};
use machine::{Events, Kinds, Machine, Stop, Turns, snapshot};
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const MEMORY_MIB: u64 = 512;
/// More than any boot takes: one that does not end is a failure.
const INSTRUCTIONS_MAX: u64 = 20_000_000_000;
/// How much runs between two looks at the clock and the budget.
const CHUNK: u64 = 10_000_000;
const CLONES: usize = 200;
const LOADS: usize = 9;

/// Processor time and instructions, from the beginning of a boot.
#[derive(Clone, Copy)]
struct Mark {
    seconds: f64,
    instructions: u64,
}

/// One boot, from the kernel's file to power-off.
struct Boot {
    /// Unpacking the kernel and placing all.
    loaded: Mark,
    /// The helper's first sign.
    helper: Mark,
    off: Mark,
    /// The machine with all threads of the first test in place.
    at_test: Option<Machine>,
}

struct Guest {
    kernel: Vec<u8>,
    image: Vec<u8>,
}

impl Guest {
    fn options(&self, config: &BoardConfig) -> BootOptions {
        BootOptions {
            command_line: boot::linux::default_command_line(config.clock),
            modules: vec![Module { command_line: String::new(), bytes: self.image.clone() }],
        }
    }

    fn boot(&self, cpus: u8) -> Result<Boot, String> {
        let clock = CpuClock::own();
        let began = clock.now()?;
        let config = BoardConfig { cpus, memory_bytes: MEMORY_MIB << 20, ..BoardConfig::default() };
        let options = self.options(&config);
        let mut machine = Machine::new(config);
        let format = Format::detect(&self.kernel).map_err(|e| e.to_string())?;
        let Machine { cpus, memory, board, .. } = &mut machine;
        boot::load(format, &self.kernel, &options, memory, &mut cpus[0], board).map_err(|e| e.to_string())?;
        let mark = |machine: &Machine| -> Result<Mark, String> {
            let instructions = machine.cpus.iter().map(|cpu| cpu.executed).sum();
            Ok(Mark { seconds: (clock.now()? - began).as_secs_f64(), instructions })
        };
        let loaded = mark(&machine)?;
        let (mut helper, mut at_test) = (None, None);
        let (mut turns, mut events) = (Turns::default(), Events::off());
        while machine.instructions() < INSTRUCTIONS_MAX {
            let turn =
                turns.take(&mut machine, CHUNK, Kinds::HYPERCALL, &mut events).ok_or("nothing runs")?;
            match turn.stop {
                Stop::Hypercall => {
                    let view = View { machine: &machine, cpu: turn.cpu };
                    match decode(&registers(&machine, turn.cpu), &view) {
                        Some(Annotation::Ready) => helper = Some(mark(&machine)?),
                        Some(Annotation::TestStart { thread: 0, .. }) => at_test = Some(machine.clone()),
                        Some(Annotation::Result { test, status }) if status != 0 => {
                            return Err(format!("the test {test} failed in the guest"));
                        }
                        _ => {}
                    }
                }
                Stop::PowerOff => {
                    let helper = helper.ok_or("the helper never spoke")?;
                    return Ok(Boot { loaded, helper, off: mark(&machine)?, at_test });
                }
                _ if turn.goes_on() => {}
                stop => return Err(format!("the boot ended: {stop}")),
            }
        }
        Err("the boot does not end".to_owned())
    }
}

fn qemu() -> Option<PathBuf> {
    let unpacked = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.parent()?.join("qemu/usr/bin/qemu-system-x86_64")));
    let candidates = [Some(PathBuf::from("qemu-system-x86_64")), unpacked];
    candidates.into_iter().flatten().find(|program| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    })
}

/// QEMU's processor time for the same boot, to power-off.
fn qemu_seconds(qemu: &Path, kernel: &Path, image: &Path, command_line: &str) -> Result<f64, String> {
    let mut child = Command::new(qemu)
        .args(["-accel", "tcg", "-cpu", "qemu64", "-m", &MEMORY_MIB.to_string(), "-nodefaults"])
        .args(["-display", "none", "-no-reboot", "-serial", "stdio", "-append", command_line, "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{}: {e}", qemu.display()))?;
    let clock = CpuClock::of(child.id())?;
    let output = BufReader::new(child.stdout.take().ok_or("QEMU has no output")?);
    let mut seconds = None;
    for line in output.split(b'\n') {
        let line = line.map_err(|e| format!("QEMU's output: {e}"))?;
        if String::from_utf8_lossy(&line).contains("Preparing to enter system sleep state S5") {
            seconds = Some(clock.now()?.as_secs_f64());
        }
    }
    child.wait().map_err(|e| format!("QEMU: {e}"))?;
    seconds.ok_or_else(|| "QEMU did not get to power-off".to_owned())
}

fn microseconds(samples: usize, mut work: impl FnMut()) -> f64 {
    median((0..samples).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64() * 1e6
    }))
}

pub fn measure(table: &mut Table, rounds: u32) -> Result<(), String> {
    let Some(debian) = Debian::find() else {
        eprintln!(
            "bench: Debian's kernel is not in target/linux (guests/linux/fetch brings it there); Linux is left out"
        );
        return Ok(());
    };
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let pack = Pack { tests: sources("tests").map_err(|e| e.to_string())?, ..Pack::default() };
    let guest = Guest { kernel: read(&debian.kernel)?, image: pack.build().map_err(|e| e.to_string())? };
    let mut boots = Vec::new();
    let mut beside = Vec::new();
    let inner = boot::linux::unpack(&guest.kernel).map_err(|e| e.to_string())?;
    let folder = debian.kernel.with_file_name("");
    let (kernel_path, image_path) = (folder.join("vmlinux"), folder.join("bench.img"));
    let qemu = qemu().zip(inner);
    if let Some((_, inner)) = &qemu {
        std::fs::write(&kernel_path, inner).map_err(|e| format!("{}: {e}", kernel_path.display()))?;
        std::fs::write(&image_path, &guest.image).map_err(|e| format!("{}: {e}", image_path.display()))?;
    }
    for number in 0..rounds {
        eprintln!("bench: Linux, round {} of {rounds}", number + 1);
        boots.push(guest.boot(1)?);
        if let Some((qemu, _)) = &qemu {
            let command_line = guest.options(&BoardConfig::default()).command_line;
            beside.push(qemu_seconds(qemu, &kernel_path, &image_path, &command_line)?);
        }
    }
    let instructions = boots[0].off.instructions;
    if boots.iter().any(|boot| boot.off.instructions != instructions) {
        return Err("two boots of the same kernel executed different instructions".to_owned());
    }

    table.section("Debian's Linux kernel, one processor, 512 MiB");
    let over = |part: &dyn Fn(&Boot) -> f64| median(boots.iter().map(part));
    let helper = over(&|boot| boot.helper.seconds);
    table.aim("linux_boot_s", helper, "s", "boot to the helper", Target::AtMost(90.0));
    let unpack = over(&|boot| boot.loaded.seconds);
    table.add("linux_boot_unpack_s", unpack, "s", "of it unpacking the kernel on the host and placing it");
    table.add("linux_boot_execute_s", helper - unpack, "s", "of it executing instructions");
    table.add(
        "linux_boot_instructions",
        boots[0].helper.instructions as f64,
        "instr",
        "instructions to the helper",
    );
    let ours = |boot: &Boot| boot.off.instructions as f64 / (boot.off.seconds - boot.loaded.seconds) / 1e6;
    table.add("linux_mips", over(&ours), "M instr/s", "boot, three tests and power-off");
    if !beside.is_empty() {
        let qemu = median(beside.iter().copied());
        table.add("linux_qemu_s", qemu, "s", "the same in plain QEMU");
        table.add(
            "linux_qemu_mips",
            instructions as f64 / qemu / 1e6,
            "M instr/s",
            "plain QEMU, by our count",
        );
        let ratio =
            beside.iter().zip(&boots).map(|(qemu, boot)| qemu / (boot.off.seconds - boot.loaded.seconds));
        table.add("linux_vs_qemu", median(ratio), "×", "speed beside plain QEMU");
    }
    for cpus in [2, 4] {
        let boot = guest.boot(cpus)?;
        let what = format!("boot to the helper on {cpus} processors");
        table.add(format!("linux_boot_{cpus}_cpus_s"), boot.helper.seconds, "s", what);
    }

    let machine = boots.remove(0).at_test.ok_or("no test began")?;
    let mut file = Vec::new();
    let write = microseconds(1, || {
        file.clear();
        snapshot::write(&machine, 0, &mut file).expect("memory takes what is written");
    });
    let load = microseconds(LOADS, || drop(black_box(snapshot::read(&file, 0))));
    let read_back = snapshot::read(&file, 0).map_err(|e| e.to_string())?;
    if read_back.state_hash() != machine.state_hash() {
        return Err("a snapshot differs from what was saved".to_owned());
    }
    table.add("snapshot_mib", file.len() as f64 / (1 << 20) as f64, "MiB", "snapshot before the test");
    table.add("snapshot_write_ms", write / 1e3, "ms", "writing it");
    table.aim("snapshot_load_ms", load / 1e3, "ms", "loading it", Target::AtMost(300.0));
    let clone = microseconds(CLONES, || drop(black_box(machine.clone())));
    table.aim("linux_clone_us", clone, "µs", "clone of the booted machine", Target::AtMost(50.0));
    Ok(())
}

//! `bench machine`: how fast the machine is, traced and untraced, beside plain QEMU on the same guests; and
//! what clones cost; and Debian's Linux kernel from its first instruction to its last.
//!
//! Each engine runs in a fresh process. Engines take turns within a round, ratios are formed within a round,
//! and the median over the rounds is reported. Times are processor times.

use crate::command::Engine;
use crate::guests::Guest;
use crate::linux;
use crate::ours;
use crate::phase::Phase;
use crate::qemu::Qemu;
use crate::table::{Table, Target, median};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// One JSON object a line instead of the table.
    #[arg(long)]
    json: bool,
    /// Also write docs/results/machine.md.
    #[arg(long)]
    write: bool,
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Also count host instructions, with valgrind (slow).
    #[arg(long)]
    host_instructions: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Hot,
    Wide,
    Long,
    Clones,
    Linux,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn guests(&self) -> Vec<(Guest, u32)> {
        let all = [
            (Part::Hot, Guest::Hot, HOT_REPEAT),
            (Part::Wide, Guest::Wide, WIDE_REPEAT),
            (Part::Long, Guest::HotLong, HOT_REPEAT),
            (Part::Long, Guest::WideLong, WIDE_REPEAT),
        ];
        let wanted = all.into_iter().filter(|&(part, ..)| self.wants(part));
        wanted.map(|(_, guest, repeat)| (guest, repeat)).collect()
    }
}

/// Repetitions that take some hundred milliseconds.
const HOT_REPEAT: u32 = 40;
const WIDE_REPEAT: u32 = 100;
/// Repetitions under valgrind: counts are exact, so few are enough.
const COUNTED_REPEATS: [u32; 2] = [1, 2];
/// Phases that only prepare.
const UNMEASURED: &[&str] = &["warm", "prepare"];
const FIRST: &str = "first";
const DIRTY_PAGES: [u32; 3] = [10, 100, 1000];
const CLONED_MIB: [u64; 2] = [64, 512];

/// What one engine needed for one guest.
type Run = BTreeMap<String, Phase>;

pub fn run(options: &Options) -> Result<(), String> {
    let qemu = Qemu::find(false);
    if qemu.is_none() || Qemu::find(true).is_none() {
        eprintln!(
            "bench: qemu-system-i386 and qemu-system-x86_64 are not both installed; ratios to them are left out"
        );
    }
    let mut table = Table::default();
    let rounds = measure(options, qemu.is_some() && Qemu::find(true).is_some())?;
    for (guest, _) in options.guests() {
        speed(&mut table, &rounds, guest);
    }
    if options.host_instructions {
        host_instructions(&mut table, options)?;
    }
    if options.wants(Part::Clones) {
        clones(&mut table, options.rounds)?;
    }
    if options.wants(Part::Linux) {
        linux::measure(&mut table, options.rounds)?;
    }
    if options.json {
        print!("{}", table.json());
    } else {
        print!("{}", table.markdown());
    }
    if options.write {
        write_document(&table, qemu.as_ref())?;
    }
    Ok(())
}

/// Runs of one round, by guest and engine.
type Round = BTreeMap<(&'static str, Engine), Run>;

fn measure(options: &Options, qemu: bool) -> Result<Vec<Round>, String> {
    for (guest, _) in options.guests() {
        guest.build()?;
    }
    let mut engines = vec![Engine::Untraced, Engine::Traced, Engine::Drained];
    if qemu {
        engines.insert(0, Engine::Qemu);
    }
    let mut rounds = Vec::new();
    if options.guests().is_empty() {
        return Ok(rounds);
    }
    for number in 0..options.rounds {
        eprintln!("bench: round {} of {}", number + 1, options.rounds);
        let mut round = Round::new();
        for (guest, repeat) in options.guests() {
            for &engine in &engines {
                round.insert((guest.name(), engine), child(guest, repeat, engine)?);
            }
            agree(guest, &round)?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

fn child_command(guest: Guest, repeat: u32, engine: Engine) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let program = program.to_str().ok_or("this program's path is not text")?.to_owned();
    let rest = ["guest", guest.name(), "--repeat", &repeat.to_string(), "--engine", engine.name()];
    Ok(std::iter::once(program).chain(rest.map(str::to_owned)).collect())
}

fn child(guest: Guest, repeat: u32, engine: Engine) -> Result<Run, String> {
    let words = child_command(guest, repeat, engine)?;
    let output =
        Command::new(&words[0]).args(&words[1..]).output().map_err(|e| format!("{}: {e}", words[0]))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} in {}: {}", guest.name(), engine.name(), message.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let phases: Option<Vec<Phase>> = text.lines().map(Phase::from_json).collect();
    let phases = phases.ok_or_else(|| format!("phases of {} are not readable:\n{text}", guest.name()))?;
    Ok(phases
        .into_iter()
        .filter(|phase| !UNMEASURED.contains(&phase.name.as_str()))
        .map(|phase| (phase.name.clone(), phase))
        .collect())
}

/// All engines must have computed the same, and ours executed the same instructions.
fn agree(guest: Guest, round: &Round) -> Result<(), String> {
    let runs: Vec<_> = round.iter().filter(|((name, _), _)| *name == guest.name()).collect();
    for pair in runs.windows(2) {
        let ((key, run), (other_key, other)) = (pair[0], pair[1]);
        for (name, phase) in run {
            let same = other.get(name).is_some_and(|there| {
                let counts = phase.instructions.zip(there.instructions);
                there.checksum == phase.checksum && counts.is_none_or(|(a, b)| a == b)
            });
            if !same {
                return Err(format!("{name} differs between {:?} and {:?}", key, other_key));
            }
        }
    }
    Ok(())
}

fn seconds(run: &Run, wanted: impl Fn(&str) -> bool) -> f64 {
    run.values().filter(|phase| wanted(&phase.name)).map(|phase| phase.time.as_secs_f64()).sum()
}

fn instructions(run: &Run, wanted: impl Fn(&str) -> bool) -> f64 {
    run.values().filter(|phase| wanted(&phase.name)).filter_map(|phase| phase.instructions).sum::<u64>()
        as f64
}

/// The runs of one guest.
struct Runs<'a> {
    rounds: &'a [Round],
    name: &'static str,
}

impl Runs<'_> {
    fn seconds(&self, round: &Round, engine: Engine, wanted: &dyn Fn(&str) -> bool) -> Option<f64> {
        round.get(&(self.name, engine)).map(|run| seconds(run, wanted))
    }

    /// How much longer one engine takes than another, in the median of the rounds.
    fn over(&self, above: Engine, below: Engine, wanted: &dyn Fn(&str) -> bool) -> f64 {
        median(self.rounds.iter().filter_map(|round| {
            Some(self.seconds(round, above, wanted)? / self.seconds(round, below, wanted)?)
        }))
    }

    /// Millions of the `count` instructions a second.
    fn rate(&self, count: f64, engine: Engine, wanted: &dyn Fn(&str) -> bool) -> f64 {
        let rate = |round: &Round| Some(count / self.seconds(round, engine, wanted)? / 1e6);
        median(self.rounds.iter().filter_map(rate))
    }

    /// The engines that every round has.
    fn engines(&self) -> &'static [Engine] {
        match self.has_qemu() {
            true => &[Engine::Qemu, Engine::Untraced, Engine::Traced, Engine::Drained],
            false => &[Engine::Untraced, Engine::Traced, Engine::Drained],
        }
    }

    fn has_qemu(&self) -> bool {
        self.rounds.iter().all(|round| round.contains_key(&(self.name, Engine::Qemu)))
    }
}

fn speed(table: &mut Table, rounds: &[Round], guest: Guest) {
    let name = guest.name();
    let runs = Runs { rounds, name };
    let steady = |phase: &str| phase != FIRST;
    let Some(reference) = rounds.first().and_then(|round| round.get(&(name, Engine::Untraced))) else {
        return;
    };
    let count = instructions(reference, steady);
    table.section(match guest {
        Guest::Hot => "Hot code",
        Guest::HotLong => "Hot 64-bit code",
        Guest::WideLong => "Wide 64-bit code: 4,000 functions",
        _ => "Wide code: 4,000 functions",
    });
    for &engine in runs.engines() {
        let value = runs.rate(count, engine, &steady);
        let what = format!("{name}, {}", engine.name());
        table.add(format!("{name}_{}", engine.name()), value, "M instr/s", what);
    }
    if runs.has_qemu() {
        let untraced = runs.over(Engine::Qemu, Engine::Untraced, &steady);
        table.add(format!("{name}_untraced_vs_qemu"), untraced, "×", "untraced, speed beside plain QEMU");
        let traced = runs.over(Engine::Qemu, Engine::Traced, &steady);
        let limit = if guest.is_hot() { 0.40 } else { 2.0 };
        let what = "traced, speed beside plain QEMU";
        table.aim(&format!("{name}_traced_vs_qemu"), traced, "×", what, Target::AtLeast(limit));
        let drained = runs.over(Engine::Qemu, Engine::Drained, &steady);
        table.add(format!("{name}_drained_vs_qemu"), drained, "×", "traced and drained, beside plain QEMU");
    }
    if guest.is_long() {
        beside_narrow(table, rounds, guest);
    }
    let cost = (runs.over(Engine::Traced, Engine::Untraced, &steady) - 1.0) * 100.0;
    if guest == Guest::HotLong {
        table.add("hot64_tracing_cost", cost, "%", "what tracing costs: accesses take two words of the log");
    } else if guest == Guest::Hot {
        table.aim("tracing_cost", cost, "%", "what tracing costs", Target::AtMost(10.0));
        phases(table, &runs, reference);
    } else {
        table.add(format!("{name}_tracing_cost"), cost, "%", "what tracing costs");
        first_pass(table, &runs, reference, guest);
    }
}

/// The speed of 64-bit code beside that of the same code for 32 bits, where that was run too.
fn beside_narrow(table: &mut Table, rounds: &[Round], guest: Guest) {
    let steady = |phase: &str| phase != FIRST;
    let name = guest.name();
    let narrow = if guest.is_hot() { Guest::Hot } else { Guest::Wide }.name();
    let rate = |round: &Round, name| {
        let run = round.get(&(name, Engine::Untraced))?;
        Some(instructions(run, steady) / seconds(run, steady))
    };
    if rounds.iter().all(|round| rate(round, narrow).is_some()) {
        let ratio = rounds.iter().filter_map(|round| Some(rate(round, name)? / rate(round, narrow)?));
        let what = "untraced, speed beside 32-bit code";
        table.add(format!("{name}_vs_{narrow}"), median(ratio), "×", what);
    }
}

/// Hot code by the kind of work it does.
fn phases(table: &mut Table, runs: &Runs<'_>, reference: &Run) {
    for phase in reference.keys() {
        let only = |name: &str| name == phase;
        let value = runs.rate(instructions(reference, only), Engine::Traced, &only);
        table.add(format!("hot_{phase}_traced"), value, "M instr/s", format!("of it {phase}, traced"));
        if runs.has_qemu() {
            let ratio = runs.over(Engine::Qemu, Engine::Traced, &only);
            let what = format!("of it {phase}, beside QEMU");
            table.add(format!("hot_{phase}_traced_vs_qemu"), ratio, "×", what);
        }
    }
}

/// The pass over code that was never executed before.
fn first_pass(table: &mut Table, runs: &Runs<'_>, reference: &Run, guest: Guest) {
    let first = |phase: &str| phase == FIRST;
    let (suffix, title) = match guest.is_long() {
        true => ("64", "First pass over new 64-bit code"),
        false => ("", "First pass over new code"),
    };
    table.section(title);
    for &engine in runs.engines() {
        let times = runs.rounds.iter().filter_map(|round| Some(runs.seconds(round, engine, &first)? * 1e3));
        table.add(format!("first_pass{suffix}_{}", engine.name()), median(times), "ms", engine.name());
    }
    if runs.has_qemu() {
        let ratio = runs.over(Engine::Qemu, Engine::Traced, &first);
        let what = "traced, speed beside plain QEMU";
        table.aim(&format!("first_pass{suffix}_vs_qemu"), ratio, "×", what, Target::AtLeast(8.0));
    }
    let count = instructions(reference, first);
    table.add(format!("first_pass{suffix}_instructions"), count, "instr", "instructions in the pass");
}

/// Host instructions per guest instruction: the difference between a longer and a shorter run under
/// callgrind.
fn host_instructions(table: &mut Table, options: &Options) -> Result<(), String> {
    table.section("Host instructions per guest instruction");
    for (guest, _) in options.guests() {
        for engine in [Engine::Untraced, Engine::Traced] {
            let mut host: Vec<f64> = Vec::new();
            let mut steady = Vec::new();
            for repeat in COUNTED_REPEATS {
                let words = child_command(guest, repeat, engine)?;
                let output = Command::new("valgrind")
                    .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
                    .args(&words)
                    .output()
                    .map_err(|e| format!("valgrind: {e}; install valgrind to count host instructions"))?;
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                let collected =
                    text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
                host.push(collected.ok_or_else(|| format!("valgrind counted nothing:\n{text}"))?);
                steady.push(instructions(&child(guest, repeat, engine)?, |phase| phase != FIRST));
            }
            let (host, guest_count) = (host[1] - host[0], steady[1] - steady[0]);
            let name = format!("{}_{}_host_instructions", guest.name(), engine.name());
            table.add(name, host / guest_count, "", format!("{} code, {}", guest.name(), engine.name()));
        }
    }
    Ok(())
}

fn clones(table: &mut Table, rounds: u32) -> Result<(), String> {
    let kernel = Guest::Dirty.build()?;
    table.section("Clones");
    for pages in DIRTY_PAGES {
        let timings = ours::checkpoints(&kernel, pages, rounds)?;
        for (part, what, value) in
            [("clone", "clone", timings.clone_us), ("restore", "restore", timings.restore_us)]
        {
            table.add(
                format!("{part}_{pages}_pages_us"),
                value,
                "µs",
                format!("{what}, {pages} pages dirty"),
            );
        }
        let name = format!("clone_restore_{pages}_pages_us");
        let what = format!("clone, {pages} pages dirtied by the guest, restore");
        match pages {
            100 => table.aim(&name, timings.whole_us, "µs", &what, Target::AtMost(30.0)),
            _ => table.add(name, timings.whole_us, "µs", what),
        }
    }
    for mib in CLONED_MIB {
        let value = ours::clone_us(&kernel, mib << 20, rounds)?;
        table.add(format!("clone_{mib}_mib_us"), value, "µs", format!("clone of a machine with {mib} MiB"));
    }
    Ok(())
}

fn write_document(table: &Table, qemu: Option<&Qemu>) -> Result<(), String> {
    let version = qemu.map_or("not installed".to_owned(), |qemu| qemu.version.clone());
    let text = format!(
        "# Speed of the machine\n\n\
         Written by `cargo run --release -p bench -- machine --host-instructions --write`. QEMU: {version}, plain TCG. \
         Every ratio is of one run on one host; absolute numbers move with the host.\n\n\
         The guests are Multiboot kernels with paging on, the same bytes for every engine: `hot` runs eight small loops of \
         kernel-like work, `wide` calls 4,000 generated functions in changing order, and its first pass is a measure of its \
         own. Times are processor times between two halts of the guest, so booting is in none of them. *Traced* logs each \
         memory access and reads the log word by word; *drained* hands accesses over in full (physical address, \
         size, direction, instruction), most repetitions left out, as the trackers take them.\n\n{}",
        table.markdown()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/machine.md");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    std::fs::write(&path, text.trim_end().to_owned() + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

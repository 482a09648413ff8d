//! Runs the mutants and prints what became of each.

use clap::Parser;
use mutants::{Copy, Fate, Mutant, divide, list};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How many seconds compiling a copy and its tests may take.
const COMPILING_SECONDS_MAX: u64 = 3600;

/// Breaks one rule of Rockfall at a time and looks whether a test notices.
#[derive(Parser)]
struct Arguments {
    /// Only mutants whose name or file has this part.
    #[arg(long)]
    only: Option<String>,
    /// Seconds that one run of tests may take.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Where the copy of the tree is kept.
    #[arg(long, default_value = "target/mutants")]
    folder: PathBuf,
    /// Also write the table into docs/results/soundness.md.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the mutants; says how many survived without being known to be equivalent.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let part = arguments.only.as_deref().unwrap_or_default();
    let wanted = |mutant: &Mutant| mutant.name.contains(part) || mutant.file.to_string_lossy().contains(part);
    let mutants: Vec<Mutant> = list()?.into_iter().filter(wanted).collect();
    let limit = Duration::from_secs(arguments.seconds);
    let mut fates: BTreeMap<usize, String> = BTreeMap::new();
    let (mut killed, mut equivalent, mut survived) = (0, 0, 0);
    for (number, mutant) in mutants.iter().enumerate() {
        if let Some(why) = &mutant.equivalent {
            equivalent += 1;
            fates.insert(number, format!("equivalent: {why}"));
        }
    }
    for copied in divide(&mutants) {
        let alive: Vec<(usize, Mutant)> =
            copied.into_iter().filter(|(_, mutant)| mutant.equivalent.is_none()).collect();
        let copy = Copy::new(&root, &arguments.folder, &alive)?;
        let tests: BTreeSet<&String> = alive.iter().flat_map(|(_, mutant)| &mutant.tests).collect();
        if let Some(tests) = copy.broken(tests.into_iter(), Duration::from_secs(COMPILING_SECONDS_MAX))? {
            return Err(format!(
                "`cargo test --release {tests}` fails in {} with all mutants off",
                arguments.folder.display()
            ));
        }
        for (number, mutant) in &alive {
            let fate = match copy.try_out(*number, mutant, limit)? {
                Fate::Killed { by } => {
                    killed += 1;
                    format!("killed by `{by}`")
                }
                Fate::TimedOut { by } => {
                    killed += 1;
                    format!("killed: `{by}` did not end")
                }
                Fate::Survived => {
                    survived += 1;
                    "**survived**".to_owned()
                }
            };
            println!("{}: {fate}", mutant.name);
            fates.insert(*number, fate);
        }
    }
    let total = mutants.len();
    let summary = format!("{total} mutants: {killed} killed, {equivalent} equivalent, {survived} survived.");
    println!("{summary}");
    if arguments.write {
        let mut table = format!("{summary}\n\n| mutant | file | what became of it |\n|---|---|---|\n");
        for (number, fate) in fates {
            let Mutant { name, file, .. } = &mutants[number];
            let _ = writeln!(table, "| {name} | `{}` | {fate} |", file.display());
        }
        let page = root.join("docs/results/soundness.md");
        let told = |error: std::io::Error| format!("{}: {error}", page.display());
        let text = std::fs::read_to_string(&page).map_err(told)?;
        let text = report::section::replaced(&text, "mutants", &table)
            .ok_or_else(|| format!("{} has no place for the result", page.display()))?;
        std::fs::write(&page, text).map_err(told)?;
    }
    Ok(survived)
}

//! Runs the mutants and prints what became of each.

use clap::Parser;
use mutants::{Copy, Fate, Mutant, divide, list};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What compiling a copy and its tests may take.
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
    /// A file with a line for each mutant that was tried: these are not tried again, and count for the table.
    #[arg(long)]
    record: Option<PathBuf>,
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

/// What became of mutants, by name, in words; and what is known of the tests without any mutant.
struct Record {
    file: Option<PathBuf>,
    lines: BTreeMap<String, String>,
}

/// The name under which it is kept that tests pass with all mutants off.
const OFF: &str = "all mutants off";

impl Record {
    /// What the file holds, a line for each: name and what became of it, with a tab between them.
    fn read(file: Option<PathBuf>) -> Result<Self, String> {
        let mut lines = BTreeMap::new();
        if let Some(file) = file.as_ref().filter(|file| file.exists()) {
            let text =
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            for line in text.lines() {
                let (name, fate) = line.split_once('\t').ok_or_else(|| {
                    format!(
                        "{}: '{line}' is no name and what became of it, with a tab between",
                        file.display()
                    )
                })?;
                lines.insert(name.to_owned(), fate.to_owned());
            }
        }
        Ok(Self { file, lines })
    }

    fn add(&mut self, name: &str, fate: &str) -> Result<(), String> {
        self.lines.insert(name.to_owned(), fate.to_owned());
        let Some(file) = &self.file else { return Ok(()) };
        let open = OpenOptions::new().create(true).append(true).open(file);
        let written = open.and_then(|mut open| writeln!(open, "{name}\t{fate}"));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// How many survived without being known to be equivalent.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let part = arguments.only.as_deref().unwrap_or_default();
    let wanted = |mutant: &Mutant| mutant.name.contains(part) || mutant.file.to_string_lossy().contains(part);
    let mutants = list()?;
    let limit = Duration::from_secs(arguments.seconds);
    let mut record = Record::read(arguments.record.clone())?;
    for copied in divide(&mutants) {
        let alive: Vec<(usize, Mutant)> =
            copied.into_iter().filter(|(_, mutant)| mutant.equivalent.is_none()).collect();
        let unknown = |mutant: &Mutant| wanted(mutant) && !record.lines.contains_key(&mutant.name);
        let tried: Vec<&(usize, Mutant)> = alive.iter().filter(|(_, mutant)| unknown(mutant)).collect();
        if tried.is_empty() {
            continue;
        }
        let copy = Copy::new(&root, &arguments.folder, &alive)?;
        let tests: BTreeSet<&String> = tried.iter().flat_map(|(_, mutant)| &mutant.tests).collect();
        for tests in tests {
            let key = format!("{OFF}: {tests}");
            if !record.lines.contains_key(&key) {
                if copy.broken(std::iter::once(tests), Duration::from_secs(COMPILING_SECONDS_MAX))?.is_some()
                {
                    return Err(format!(
                        "`cargo test --release {tests}` fails in {} with all mutants off",
                        arguments.folder.display()
                    ));
                }
                record.add(&key, "passes")?;
            }
        }
        for (number, mutant) in tried {
            let fate = match copy.try_out(*number, mutant, limit)? {
                Fate::Killed { by } => format!("killed by `{by}`"),
                Fate::TimedOut { by } => format!("killed: `{by}` did not end"),
                Fate::Survived => SURVIVED.to_owned(),
            };
            println!("{}: {fate}", mutant.name);
            record.add(&mutant.name, &fate)?;
        }
    }
    let table = table(&mutants, &record);
    let survived = |mutant: &&Mutant| record.lines.get(&mutant.name).is_some_and(|fate| fate == SURVIVED);
    println!("{}", table.lines().next().unwrap_or_default());
    if arguments.write {
        let page = root.join("docs/results/soundness.md");
        let in_words = |error: std::io::Error| format!("{}: {error}", page.display());
        let text = std::fs::read_to_string(&page).map_err(in_words)?;
        let text = report::section::replaced(&text, "mutants", &table)
            .ok_or_else(|| format!("{} has no place for the result", page.display()))?;
        std::fs::write(&page, text).map_err(in_words)?;
    }
    Ok(mutants.iter().filter(survived).count())
}

const SURVIVED: &str = "**survived**";

/// A line with the numbers, and a row for each mutant that was tried or needs no trying.
fn table(mutants: &[Mutant], record: &Record) -> String {
    let fate = |mutant: &Mutant| match &mutant.equivalent {
        Some(why) => Some(format!("equivalent: {why}")),
        None => record.lines.get(&mutant.name).cloned(),
    };
    let count = |begin: &str| {
        mutants.iter().filter(|mutant| fate(mutant).is_some_and(|fate| fate.starts_with(begin))).count()
    };
    let untried = mutants.iter().filter(|mutant| fate(mutant).is_none()).count();
    let mut table = format!(
        "{} mutants: {} killed, {} equivalent, {} survived, {untried} not tried.\n\n\
         | mutant | file | what became of it |\n|---|---|---|\n",
        mutants.len(),
        count("killed"),
        count("equivalent"),
        count(SURVIVED)
    );
    for mutant in mutants {
        if let Some(fate) = fate(mutant) {
            let _ = writeln!(table, "| {} | `{}` | {fate} |", mutant.name, mutant.file.display());
        }
    }
    table
}

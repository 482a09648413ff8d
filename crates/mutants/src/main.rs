//! Runs the mutants and prints what became of each.

use clap::Parser;
use mutants::{Copy, Fate, Mutant, list};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Breaks one rule of Rockfall at a time and looks whether a test notices.
#[derive(Parser)]
struct Arguments {
    /// Only mutants whose name or file has this part.
    #[arg(long)]
    only: Option<String>,
    /// Seconds that one run of tests may take.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Where the copy of the tree is kept.
    #[arg(long, default_value = "target/mutants")]
    folder: PathBuf,
    /// Write the table to docs/results/mutants.md.
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

/// How many survived without being known to be equivalent.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let wanted = |mutant: &Mutant| {
        let part = arguments.only.as_deref().unwrap_or_default();
        mutant.name.contains(part) || mutant.file.to_string_lossy().contains(part)
    };
    let mutants: Vec<Mutant> = list()?.into_iter().filter(wanted).collect();
    let copy = Copy::new(&root, &arguments.folder)
        .map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
    let mut table = String::from("| mutant | file | what became of it |\n|---|---|---|\n");
    let (mut killed, mut equivalent, mut survived) = (0, 0, 0);
    for mutant in &mutants {
        let fate = match &mutant.equivalent {
            Some(why) => {
                equivalent += 1;
                format!("equivalent: {why}")
            }
            None => match copy.try_out(mutant, Duration::from_secs(arguments.seconds))? {
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
                Fate::DoesNotCompile(tests) => {
                    return Err(format!("mutant '{}' does not compile with `{tests}`", mutant.name));
                }
            },
        };
        println!("{}: {fate}", mutant.name);
        let _ = writeln!(table, "| {} | `{}` | {fate} |", mutant.name, mutant.file.display());
    }
    let total = mutants.len();
    let summary = format!("{total} mutants: {killed} killed, {equivalent} equivalent, {survived} survived");
    println!("{summary}");
    if arguments.write {
        let text = format!(
            "# Rules broken on purpose\n\nMade by `cargo run --release -p mutants -- --write`: each rule of `mutants.toml` is \
             broken in a copy of the tree, and the tests\nnamed beside it are run.\n\n{summary}.\n\n{table}"
        );
        let path = root.join("docs/results/mutants.md");
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(survived)
}

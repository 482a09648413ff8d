//! `bench many-threads`: bugs of one preemption among many threads, each looked for by plain `rockfall test`.
//!
//! The programs are written after the descriptions of two families of SCTBench (Thomson, Donaldson and Betts
//! 2014): `reorder_N`, where N - 1 threads write two variables and one looks at both, and `twostage_N`, where
//! N - 1 threads work in two stages under two locks and one looks at what came of them. They are
//! `guests/programs/reorder_test.c` and `twostage_test.c`.

use crate::guests::folder;
use crate::run::{Ending, Outcome, run as test};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Threads beside the first one.
const THREADS: [u32; 6] = [3, 4, 5, 10, 20, 50];
const FAMILIES: [(&str, &str); 2] = [("reorder", "FAULT_REORDER"), ("twostage", "FAULT_TWOSTAGE")];

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Seconds for each program
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Only programs whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Also write the table into docs/results/soundness.md
    #[arg(long)]
    write: bool,
}

/// A program of a family with so many threads, with its fault.
fn program(family: &str, flag: &str, threads: u32) -> guests::Program {
    let file = guests::sources().join(format!("programs/{family}_test.c"));
    let writers = threads - 1;
    let source = format!("#define WRITERS {writers}\n#define {flag}\n#include \"{}\"\n", file.display());
    guests::Program { name: format!("{family}_{threads}"), source }
}

pub fn run(options: &Options) -> Result<(), String> {
    let all =
        FAMILIES.iter().flat_map(|(family, flag)| THREADS.map(|threads| program(family, flag, threads)));
    let wanted = |program: &guests::Program| {
        options.only.as_ref().is_none_or(|only| program.name.contains(only.as_str()))
    };
    let programs: Vec<guests::Program> = all.filter(wanted).collect();
    let at = folder()?.join("many-threads");
    fs::create_dir_all(&at).map_err(|e| format!("{}: {e}", at.display()))?;
    guests::Build::default().image_with(&programs, &at).map_err(|e| e.to_string())?;
    let mut table = String::from("| program | found | interleavings | seconds |\n|---|---|---|---|\n");
    for guests::Program { name, .. } in &programs {
        let Outcome { ending, interleavings, seconds, .. } = look_for(options, &at, name)?;
        let found = match ending {
            Ending::Found(kind) => kind,
            other => format!("**{other}**"),
        };
        let row = format!("| {name} | {found} | {interleavings} | {seconds:.1} |");
        println!("{row}");
        let _ = writeln!(table, "{row}");
    }
    if options.write {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/soundness.md");
        let in_words = |e: std::io::Error| format!("{}: {e}", page.display());
        let text = fs::read_to_string(&page).map_err(in_words)?;
        let text = report::section::replaced(&text, "many-threads", &table)
            .ok_or_else(|| format!("{} has no place for the result", page.display()))?;
        fs::write(&page, text).map_err(in_words)?;
    }
    Ok(())
}

fn look_for(options: &Options, at: &Path, name: &str) -> Result<Outcome, String> {
    let arguments = [
        "test",
        "kernel",
        "-k",
        "pebbles",
        "--program",
        &format!("programs/{name}"),
        "--budget",
        &format!("{}s", options.seconds),
        "--workers",
        &options.workers.to_string(),
        "--fresh",
        "--json",
    ];
    test(&arguments.map(str::to_owned), at, name, options.seconds)
}

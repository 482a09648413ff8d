//! `bench transactions`: what the thesis asked of programs with hardware transactions (Blum 2018, tables 6.1 to 6.4), asked of the
//! bundled ones, which were written anew.
//!
//! Bugs: interleavings and seconds until they are found, by iterative deepening and in the maximal space. Verification: the
//! spaces of mended programs of K threads and N iterations each, with each way to explore transactions. Each cell runs the command
//! as its users do, in a process of its own, with one worker, for at most so many seconds.

use crate::guests::folder;
use crate::run::Summary;
use ::guests::{Build, Program};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/transactions.md.
    #[arg(long)]
    write: bool,
    /// Seconds for a cell; the thesis had an hour for bugs, and ten for verification.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Only programs whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

/// Threads and iterations.
type Size = (u8, u8);

/// Wrong programs, how their transactions are explored, and their sizes in the thesis.
const WRONG: &[(&str, &str, &[Size])] = &[
    ("htm1", "retry", &[(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4), (4, 1), (4, 2)]),
    ("swapbug", "retry", &[(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2)]),
    ("avl_insert", "retry", &[(2, 2), (2, 3), (2, 4), (3, 1), (3, 2)]),
    ("lock_fast_spinlock", "stm", &[(2, 1), (9, 9)]),
];

/// Mended programs, and their sizes.
const MENDED: &[(&str, &[Size])] = &[
    ("htm2", &[(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]),
    ("counter", &[(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]),
    ("swap", &[(2, 1), (2, 2), (3, 1)]),
    ("fig63", &[(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]),
    ("avl_fixed", &[(2, 1), (2, 2), (3, 1)]),
    ("map_basic", &[(2, 1), (2, 2), (3, 1)]),
    ("map_basicer", &[(2, 1), (2, 2), (3, 1)]),
];

/// Locks alone, and what uses them without transactions.
const LOCKS: &[(&str, &[Size])] = &[
    ("lock_spinlock", &[(2, 1), (2, 2), (3, 1)]),
    ("lock_spin_fixed", &[(2, 1), (2, 2), (3, 1)]),
    ("lock_mutex", &[(2, 1), (2, 2), (3, 1)]),
    ("lock_fast_spin_fixed", &[(2, 1), (9, 9)]),
    ("lock_fast_mutex", &[(2, 1), (9, 9)]),
    ("avl_mutex", &[(2, 1), (2, 2), (2, 3), (3, 1)]),
    ("map_mutex", &[(2, 1), (2, 2), (2, 3), (3, 1)]),
    ("map_basicer_mutex", &[(2, 1), (2, 2), (2, 3), (3, 1)]),
];

const POINTS: &str = "lock,unlock,create,wake";

struct Bench<'a> {
    options: &'a Options,
    built: PathBuf,
    rockfall: PathBuf,
}

fn sized(program: &str, (threads, iterations): Size) -> String {
    format!("{program}_{threads}_{iterations}")
}

/// All programs in all their sizes.
fn programs() -> Vec<Program> {
    let wrong = WRONG.iter().map(|&(name, _, sizes)| (name, sizes));
    let all = wrong.chain(MENDED.iter().copied()).chain(LOCKS.iter().copied());
    let folder = ::guests::sources().join("programs");
    let program = |name: &str, size: Size| Program {
        name: sized(name, size),
        source: format!(
            "#define HTM_THREADS {}\n#define HTM_ITERATIONS {}\n#include \"{}\"\n",
            size.0,
            size.1,
            folder.join(name).with_extension("c").display()
        ),
    };
    all.flat_map(|(name, sizes)| sizes.iter().map(move |&size| program(name, size))).collect()
}

impl Bench<'_> {
    fn selects(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// What became of it: verdict, interleavings and seconds.
    fn cell(&self, program: &str, size: Size, arguments: &[&str]) -> Result<String, String> {
        let name = sized(program, size);
        let (subcommand, more) = arguments.split_first().ok_or("no command")?;
        let mut command = Command::new(&self.rockfall);
        command.current_dir(&self.built).arg(subcommand);
        command.args(["kernel", "-k", "pebbles", "--program", &format!("programs/{name}"), "--json"]);
        command.args(["--no-minimise", "--workers", "1", "--budget", &format!("{}s", self.options.seconds)]);
        if *subcommand == "test" {
            command.arg("--fresh");
        }
        let output = command.args(more).output().map_err(|e| format!("{}: {e}", self.rockfall.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let summary = Summary::last_of(&said);
        let Some(summary) = summary else {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name}: {}", errors.lines().next_back().unwrap_or("no result")));
        };
        let Summary { verdict, finding, interleavings, seconds, .. } = summary;
        eprintln!("bench: {name} {}: {verdict} {interleavings} {seconds:.1} s", arguments.join(" "));
        Ok(match (verdict.as_str(), finding) {
            (_, Some(finding)) => format!("**{}** {interleavings}, {seconds:.1} s", finding.kind),
            ("exhausted", None) => format!("**exhausted** {interleavings}, {seconds:.1} s"),
            _ => format!("– {interleavings}, {seconds:.0} s"),
        })
    }

    fn row(&self, text: &mut String, name: &str, size: Size, ways: &[&[&str]]) -> Result<(), String> {
        let cells = ways.iter().map(|way| self.cell(name, size, way)).collect::<Result<Vec<_>, _>>()?;
        let _ = writeln!(text, "| {name} | {}, {} | {} |", size.0, size.1, cells.join(" | "));
        Ok(())
    }
}

fn head(text: &mut String, title: &str, about: &str, columns: &[&str]) {
    let _ = writeln!(text, "\n## {title}\n\n{about}\n");
    let _ = writeln!(text, "| program | K, N | {} |", columns.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(columns.len() + 2));
}

pub fn run(options: &Options) -> Result<(), String> {
    let built = folder()?.join("transactions");
    Build::default().image_with(&programs(), &built).map_err(|e| e.to_string())?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let bench = Bench { options, built, rockfall: program.with_file_name("rockfall") };
    let mut text = String::new();
    bugs(&bench, &mut text)?;
    verification(&bench, &mut text)?;
    reduction(&bench, &mut text)?;
    locks(&bench, &mut text)?;
    print!("{text}");
    if options.write { write_document(&text, options) } else { Ok(()) }
}

fn bugs(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Bugs (table 6.1)",
        "Until the bug shows, by `rockfall test` and by `rockfall test --maximal`.",
        &["deepening", "maximal"],
    );
    for (name, how, sizes) in WRONG.iter().filter(|(name, ..)| bench.selects(name)) {
        for &size in *sizes {
            let ways: [&[&str]; 2] =
                [&["test", "--transactions", how], &["test", "--maximal", "--transactions", how]];
            bench.row(text, name, size, &ways)?;
        }
    }
    Ok(())
}

fn verification(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Verification (table 6.2)",
        "The space with points at locks, transactions, and threads made and woken, up to the order of independent steps.",
        &["retry", "codes", "stm"],
    );
    for (name, sizes) in MENDED.iter().filter(|(name, _)| bench.selects(name)) {
        for &size in *sizes {
            let ways =
                ["retry", "codes", "stm"].map(|how| ["explore", "--points", POINTS, "--transactions", how]);
            bench.row(text, name, size, &[&ways[0], &ways[1], &ways[2]])?;
        }
    }
    Ok(())
}

fn reduction(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Reduction",
        "The same space with `retry`, reduced and with every interleaving. What retry sets were made for needs nothing of its own \
         here: outcomes sleep as threads do.",
        &["dpor", "depth-first"],
    );
    for name in ["fig63", "counter"].into_iter().filter(|name| bench.selects(name)) {
        let ways = ["dpor", "depth-first"]
            .map(|how| ["explore", "--points", "create", "--transactions", "retry", "--strategy", how]);
        bench.row(text, name, (2, 1), &[&ways[0], &ways[1]])?;
    }
    Ok(())
}

fn locks(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Locks apart from what uses them (table 6.4)",
        "Elided locks alone, with `stm`; then the data structures with a mutex and no transactions.",
        &["explored"],
    );
    for (name, sizes) in LOCKS.iter().filter(|(name, _)| bench.selects(name)) {
        for &size in *sizes {
            let plain = ["explore", "--points", POINTS];
            let stm = ["explore", "--points", POINTS, "--transactions", "stm"];
            let way: &[&str] = if name.starts_with("lock") { &stm } else { &plain };
            bench.row(text, name, size, &[way])?;
        }
    }
    Ok(())
}

fn write_document(text: &str, options: &Options) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/results/transactions.md");
    let document = format!(
        "# Programs with transactions\n\nWritten by `cargo run --release -p bench -- transactions --seconds {} --write`: one worker \
         and {} seconds for each cell. A cell has the outcome, the interleavings and the seconds; – is a space that was not \
         finished. K threads run N iterations each. The thesis (Blum 2018, chapter 6) had an hour for each bug and ten hours for \
         each verification, on eight cores; its programs and kernel are others, so that numbers compare in kind only.\n{text}",
        options.seconds, options.seconds
    );
    std::fs::write(&path, document).map_err(|e| format!("{}: {e}", path.display()))
}

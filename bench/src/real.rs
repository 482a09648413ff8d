//! `bench real`: faults in kernels that nobody here wrote, each looked for by plain `rockfall test`.
//!
//! Whoever runs it has the kernels' sources and says how they are built. For each fault of the lists beside
//! this file (an edit of one line, of our own making) the sources are copied, the line is edited, the kernel
//! is built by the command given, with small tests of ours in it, and tested for a fixed time. Then the same
//! tests on the kernel as it is, in which nothing must be found. A row is kept in a file until Rockfall, the
//! edit or the time changes, so that the table can be made in pieces; one that failed is not kept.

pub mod edit;
pub mod prepare;

use crate::guests::folder;
use crate::run::{self, Ending, Outcome};
use edit::Fault;
use guests::courses::COMPILER_FLAGS;
use prepare::{Course, Kernel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Sources of xv6 for x86
    #[arg(long, value_name = "FOLDER")]
    xv6: Option<PathBuf>,
    /// Sources of Pintos, the folder that holds src
    #[arg(long, value_name = "FOLDER")]
    pintos: Option<PathBuf>,
    /// How a copy of xv6 is built, in its folder; must leave the file kernelmemfs there. Today's compilers
    /// have warnings for it, which its makefile takes for errors
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "sed -i s/-Werror/-Wno-error/ Makefile && make kernelmemfs"
    )]
    xv6_build: String,
    /// How Pintos is built, in its folder; must leave kernel.o, kernel.bin and loader.bin in
    /// src/threads/build
    #[arg(long, value_name = "COMMAND", default_value_t = pintos_build())]
    pintos_build: String,
    /// Seconds for each fault
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Seconds for each test of a kernel as it is
    #[arg(long, default_value_t = 20.0)]
    unchanged_seconds: f64,
    /// Worker threads
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Only rows whose name contains this; of the others what is kept is shown
    #[arg(long)]
    only: Option<String>,
    /// Also write docs/results/real.md
    #[arg(long)]
    write: bool,
}

/// Today's compilers build a Pintos that does not boot, unless they are told what `rockfall new` tells them.
fn pintos_build() -> String {
    format!("make -C src/threads CC='gcc {COMPILER_FLAGS}'")
}

/// A line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    kernel: String,
    name: String,
    test: String,
    /// `None`: the kernel as it is.
    why: Option<String>,
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    row: Row,
}

impl Kept {
    /// Whether it may stand for a run: what failed is tried again, since what was wrong may be mended without
    /// a change of what the key is made of.
    fn is_of(&self, key: &str) -> bool {
        self.key == key && !matches!(self.row.outcome.ending, Ending::Failed(_))
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let courses = [
        options.xv6.as_ref().map(|sources| Course::xv6(sources, &options.xv6_build)),
        options.pintos.as_ref().map(|sources| Course::pintos(sources, &options.pintos_build)),
    ];
    let courses: Vec<Course> = courses.into_iter().flatten().collect::<Result<_, _>>()?;
    if courses.is_empty() {
        return Err("give the sources of a kernel with --xv6 or --pintos".into());
    }
    let work = folder()?.join("real");
    fs::create_dir_all(work.join("rows")).map_err(|e| format!("{}: {e}", work.display()))?;
    let mut rows = Vec::new();
    for course in &courses {
        for fault in &course.suite.faults {
            rows.extend(row(options, &work, course, Some(fault), &fault.test)?);
        }
        let tests: BTreeSet<&String> = course.suite.faults.iter().map(|fault| &fault.test).collect();
        for test in tests {
            rows.extend(row(options, &work, course, None, test)?);
        }
    }
    let text = table(&rows, options);
    print!("{text}");
    if options.write {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/real.md");
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Whether a row is meant: by its name as the table shows it, or by the one under which it is kept.
fn is_meant(only: &str, slug: &str, name: &str) -> bool {
    slug.contains(only) || name.contains(only)
}

/// What is kept of this row, or what comes of it now, if it is wanted.
fn row(
    options: &Options,
    work: &Path,
    course: &Course,
    fault: Option<&Fault>,
    test: &str,
) -> Result<Option<Row>, String> {
    let name = fault.map_or_else(|| format!("{test}, unchanged"), |fault| fault.name.clone());
    let slug = format!("{}-{}", course.name, fault.map_or(test, |fault| &fault.name));
    let path = work.join("rows").join(format!("{slug}.json"));
    let seconds = if fault.is_some() { options.seconds } else { options.unchanged_seconds };
    let checksum = run::checksum(&run::rockfall()?)?;
    let key = format!("{checksum} {seconds} {} {fault:?} {test}", options.workers);
    let kept = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    if let Some(kept) = kept.filter(|kept| kept.is_of(&key)) {
        return Ok(Some(kept.row));
    }
    if options.only.as_ref().is_some_and(|only| !is_meant(only, &slug, &name)) {
        return Ok(None);
    }
    eprintln!("{slug} …");
    let at = work.join(course.name).join(fault.map_or("unchanged", |fault| &fault.name));
    let kernel = course.build(&at, fault)?;
    let outcome = test_kernel(options.workers, seconds, &kernel, &at, test)?;
    eprintln!("{slug}: {:?}", outcome.ending);
    let why = fault.map(|fault| fault.why.clone());
    let row = Row { kernel: course.name.into(), name, test: test.into(), why, outcome };
    let kept = Kept { key: key.clone(), row: row.clone() };
    if kept.is_of(&key) {
        let text = serde_json::to_string(&kept).map_err(|e| e.to_string())?;
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if fault.is_some() {
        // The sources are there to be made again; what was found stays.
        let _ = fs::remove_dir_all(at.join("sources"));
    }
    Ok(Some(row))
}

fn test_kernel(
    workers: usize,
    seconds: f64,
    kernel: &Kernel,
    at: &Path,
    test: &str,
) -> Result<Outcome, String> {
    let mut arguments: Vec<String> = vec!["test".into(), kernel.file.display().to_string()];
    arguments.extend(["-k", &kernel.description, "-t", test].map(str::to_owned));
    if let Some(symbols) = &kernel.symbols {
        arguments.extend(["--symbols".into(), symbols.display().to_string()]);
    }
    arguments.extend(["--json", "--fresh", "--workers"].map(str::to_owned));
    arguments.extend([workers.to_string(), "--budget".into(), format!("{seconds}s")]);
    run::run(&arguments, at, test, seconds)
}

fn table(rows: &[Row], options: &Options) -> String {
    let faults: Vec<&Row> = rows.iter().filter(|row| row.why.is_some()).collect();
    let unchanged: Vec<&Row> = rows.iter().filter(|row| row.why.is_none()).collect();
    let found = |row: &&&Row| matches!(row.outcome.ending, Ending::Found(_));
    let mut out = String::from("# Kernels that nobody here wrote\n\n");
    let _ = writeln!(
        out,
        "Each fault is an edit of one line in a public kernel, looked for by plain `rockfall test` for {} seconds with {} workers; \
         the tests are small programs of ours that run in the kernel, and the same tests run on the kernel as it is, for {} seconds each. \
         `cargo run --release -p bench -- real --xv6 FOLDER --pintos FOLDER` makes this table from sources that you have; \
         `bench/src/real` holds the edits and the tests. Interleavings and time are until the fault showed, or in all; memory \
         is the most that was used at one time.\n",
        options.seconds, options.workers, options.unchanged_seconds
    );
    let _ = writeln!(
        out,
        "**{} of {} faults found; {} of {} unchanged tests reported wrongly.**\n",
        faults.iter().filter(found).count(),
        faults.len(),
        unchanged.iter().filter(found).count(),
        unchanged.len()
    );
    out += "| kernel | fault | test | result | interleavings | seconds | processor s | MB |\n";
    out += "|---|---|---|---|--:|--:|--:|--:|\n";
    for row in faults.iter().chain(&unchanged) {
        let Outcome { ending, interleavings, seconds, cpu_seconds, memory_mb } = &row.outcome;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {ending} | {interleavings} | {seconds:.1} | {cpu_seconds:.1} | {memory_mb} |",
            row.kernel, row.name, row.test
        );
    }
    out += "\nWhat each edit does:\n\n";
    for row in faults {
        let _ = writeln!(out, "- `{}`: {}", row.name, row.why.as_deref().unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, why: Option<&str>, ending: Ending) -> Row {
        Row {
            kernel: "k".into(),
            name: name.into(),
            test: "t".into(),
            why: why.map(str::to_owned),
            outcome: Outcome { ending, interleavings: 7, seconds: 1.25, cpu_seconds: 2.0, memory_mb: 300 },
        }
    }

    #[test]
    fn what_failed_is_not_kept() {
        for (ending, is_kept) in [(Ending::Unfinished, true), (Ending::Failed("no kernel".into()), false)] {
            let kept = Kept { key: "a".into(), row: row("one", None, ending) };
            assert_eq!((kept.is_of("a"), kept.is_of("b")), (is_kept, false), "{}", kept.row.outcome.ending);
        }
    }

    #[test]
    fn a_row_is_meant_by_what_the_table_calls_it() {
        let meant = |only| is_meant(only, "xv6-rf_files", "rf_files, unchanged");
        assert!(["rf_files", "rf_files, unchanged", "xv6-", "unchanged"].into_iter().all(meant));
        assert!(!["rf_files-", "pintos"].into_iter().any(meant));
        assert!(!is_meant("unchanged", "xv6-bget-window", "bget-window"));
    }

    #[test]
    fn a_table_counts() {
        let rows = [
            row("one", Some("it breaks"), Ending::Found("deadlock".into())),
            row("two", Some("it bends"), Ending::Unfinished),
            row("t, unchanged", None, Ending::Exhausted),
        ];
        let options = Options {
            xv6: None,
            pintos: None,
            xv6_build: String::new(),
            pintos_build: String::new(),
            seconds: 60.0,
            unchanged_seconds: 20.0,
            workers: 2,
            only: None,
            write: false,
        };
        let text = table(&rows, &options);
        assert!(text.contains("**1 of 2 faults found; 0 of 1 unchanged tests reported wrongly.**"), "{text}");
        assert!(text.contains("| k | one | t | deadlock | 7 | 1.2 | 2.0 | 300 |"), "{text}");
        assert!(text.contains("- `two`: it bends"), "{text}");
    }
}

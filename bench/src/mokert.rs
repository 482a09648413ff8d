//! `bench mokert`: models of C functions, checked by Spin and tried on kernels, beside the case studies of
//! MOKERT.
//!
//! Each case study is one command of Rockfall, run once, from the C file to the verdict. The fourth is on
//! xv6, whose sources whoever runs this has: copies are built with a program of ours in them, one as it is
//! and one in which two lines of ours open a window before a sleep. The fifth is on Debian's kernel, where
//! one was fetched.

use crate::guests::folder;
use crate::real::edit::Fault;
use crate::real::prepare::Course;
use crate::run::rockfall;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Sources of xv6 for x86
    #[arg(long, value_name = "FOLDER")]
    xv6: PathBuf,
    /// How xv6 is built, in its folder; must leave the file kernelmemfs there
    #[arg(long, value_name = "COMMAND", default_value = "make kernelmemfs")]
    xv6_build: String,
    /// Also write docs/results/mokert.md
    #[arg(long)]
    write: bool,
}

/// The lines of a run that say what came of it.
const RELEVANT: [&str; 6] = ["Model of", "Spin:", "Counterexample:", "On the", "Refined:", "The patch"];

/// A run of the command.
struct Run {
    shown: String,
    /// Lines that say what came of it, and how far Spin went.
    said: Vec<String>,
    seconds: f64,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `rockfall model` in a folder.
fn model(at: &Path, arguments: &[&str]) -> Result<Run, String> {
    let program = rockfall()?;
    let started = Instant::now();
    let output = Command::new(&program)
        .arg("model")
        .args(arguments)
        .current_dir(at)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let seconds = started.elapsed().as_secs_f64();
    // Where the finding goes is nobody's business.
    let kept = arguments.iter().position(|word| *word == "-o").map_or(0..0, |at| at..at + 2);
    let words = arguments.iter().enumerate().filter(|(at, _)| !kept.contains(at));
    let words: Vec<String> = words.map(|(_, word)| quoted(word)).collect();
    let shown = format!("rockfall model {}", words.join(" "));
    if !matches!(output.status.code(), Some(0 | 1)) {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}", errors.lines().next_back().unwrap_or("it failed")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let relevant = |line: &&str| RELEVANT.iter().any(|begin| line.starts_with(begin)) || is_effort(line);
    let said = text.lines().filter(relevant).map(|line| line.trim().to_owned()).collect();
    Ok(Run { shown, said, seconds })
}

/// A line such as `  265 states, 349 transitions, 2.3 s`.
fn is_effort(line: &str) -> bool {
    line.starts_with("  ") && line.contains(" states, ") && line.contains(" transitions, ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

/// Two lines of ours between looking whether there is something to read and going to sleep.
fn window() -> Fault {
    Fault {
        name: "piperead-window".to_owned(),
        file: "pipe.c".to_owned(),
        function: "piperead".to_owned(),
        line: "sleep(&p->nread, &p->lock);".to_owned(),
        with: "release(&p->lock);\n    acquire(&p->lock);\n    sleep(&p->nread, &p->lock);".to_owned(),
        test: "rf_ping".to_owned(),
        why: "a writer that comes in between wakes a reader that does not sleep yet".to_owned(),
    }
}

/// The check of xv6's pipes, drafted and checked as it is by one command.
const XV6: [&str; 13] = [
    "--draft",
    "pipe.c:pipewrite",
    "pipe.c:piperead",
    "-k",
    "xv6",
    "--flag=-m32",
    "--flag=-fno-builtin",
    "--kernel",
    "kernelmemfs",
    "-t",
    "rf_ping",
    "--check-as",
    "pipe.toml",
];

pub fn run(options: &Options) -> Result<(), String> {
    let root = repository();
    let work = folder()?.join("mokert");
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let finding = work.join("finding.json").display().to_string();
    let kept = |check: &'static str| vec![check, "-o", finding.as_str()];
    let first = model(&root, &kept("guests/models/readdir_remove.toml"))?;
    let mut patch = kept("guests/models/readdir_remove.toml");
    patch.extend(["--patch", "guests/models/count.diff"]);
    let mended = model(&root, &patch)?;
    // What is refined is written beside the check file: a copy is refined.
    let second = refined(&root, &work)?;
    let third = model(&root, &kept("guests/models/remove_remove.toml"))?;
    let course = Course::xv6(&options.xv6, &options.xv6_build)?;
    let mut xv6 = Vec::new();
    for (name, fault) in [("unchanged", None), ("seeded", Some(window()))] {
        let at = work.join(name);
        fs::create_dir_all(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        course.build(&at, fault.as_ref())?;
        xv6.push(model(&at.join("sources"), &XV6)?);
    }
    let linux = model(&root, &kept("guests/models/double_free.toml"))?;
    let text = document(&first, &mended, &second, &third, &xv6, &linux);
    print!("{text}");
    if options.write {
        let path = root.join("docs/results/mokert.md");
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn refined(root: &Path, work: &Path) -> Result<Run, String> {
    let check = root.join("guests/models/readdir_rmdir.toml");
    let failed = |e: std::io::Error| format!("{}: {e}", check.display());
    let text = fs::read_to_string(&check).map_err(failed)?;
    let fs_c = root.join("guests/pebbles/fs.c").canonicalize().map_err(failed)?;
    let copy = work.join("readdir_rmdir.toml");
    fs::write(&copy, text.replace("../pebbles/fs.c", &fs_c.display().to_string())).map_err(failed)?;
    let mut run = model(work, &["readdir_rmdir.toml", "--refine"])?;
    run.shown = "rockfall model guests/models/readdir_rmdir.toml --refine".to_owned();
    let place = fs_c.display().to_string();
    for line in &mut run.said {
        *line = line.replace(&place, "fs.c").replace(&format!("{}/", work.display()), "");
    }
    Ok(run)
}

const BEFORE: &str = "\
# Models with replay on the kernel, beside MOKERT

Kim, Hong, Hong and Kim (2009) extracted Promela models from file systems of Linux 2.6 with Modex and a hand-written translation
script, let Spin find counterexamples, and replayed these on the kernel by probes compiled into it. The three case studies are here
again on the bundled kernel's own small file system, and two more on kernels that nobody here wrote; each goes from the C file to
the verdict by one command, with nothing compiled into the kernel. Below is what each command said of it, and how long all of it
took, once, on a shared two-core machine that was busy with other work. `cargo run --release -p bench -- mokert --xv6 FOLDER --write`
makes this page.

| | in the paper | here |
|---|---|---|
| 1, 3: functions | `proc_readdir` (67 lines), `remove_proc_entry` (35) | `fs_readdir`, `fs_remove_in` and the three they call (62 lines) |
| 1: translation script | 128 lines, 76 of them the environment | 58 lines of check file: 3 rules, 3 types, 6 lines of environment |
| 1: counterexample | 59 steps | 107 steps, 81 of them of C lines |
| 1: on the kernel | `Jan Feb` is listed, `Mar` and `Apr` are not | the same: a use after free, and the test prints `Jan Feb` |
| 1: mended | by a count; the model changed by hand | `--patch guests/models/count.diff` |
| 1: time | four days of two students | seconds, and the time for writing the check file |
| 2: functions | `ext2_readdir` (78 lines), `ext2_rmdir` (15) | `dir_list`, `dir_remove` and the two they call (36 lines) |
| 2: environment | 241 lines | 5 lines |
| 2: counterexample | 77 steps | 74 steps |
| 2: on the kernel | never reached; why was found by reading logs | never reached: the mutex and both callers are named |
| 2: refined | by hand, adding the callers | by the command, adding the lock |
| 3: on the kernel | null pointer in `remove_proc_entry` | page fault at address 4 in `fs_remove_in`'s message |
| 3: time | one day of one student | seconds |

Differences worth knowing. The counterexamples here are the shortest that there are, but their steps are smaller: with one access to
shared memory a step, and the check that nothing freed is used before each, one C statement is up to eight steps. A switch can come
in the middle of a line. The paper's probes stop a thread after a line; here it is stopped before the next line of its own, so that
nothing of the kernel is moved. Where the kernel lets nobody else in (a spin lock with interrupts off) a switch comes as soon as it
does. What the paper's monitor told as \"running\" and \"sleeping\" is told here as the lock, its owner and the call that took it,
which is what made the second case study's refinement something a command can do.
";

fn document(first: &Run, mended: &Run, second: &Run, third: &Run, xv6: &[Run], linux: &Run) -> String {
    let mut text = BEFORE.to_owned();
    section(&mut text, "1. A listing stands at an entry that is freed", "", &[first, mended]);
    section(&mut text, "2. The callers' mutex excludes the race", "", &[second]);
    section(&mut text, "3. Two removals, of a directory and of what is in it", "", &[third]);
    let why = "The draft is checked as it is: nothing in it is written by hand, neither a rule nor a line of environment. The first is xv6 as it is; the second a copy in \
               which `piperead` gives the lock back and takes it again before it sleeps. The test is a letter that goes to a child \
               and back through two pipes. xv6 holds spin locks with interrupts off.\n\n";
    section(&mut text, "4. Pipes of xv6, which nobody here wrote", why, &xv6.iter().collect::<Vec<_>>());
    let why = "A module of ours on Debian's kernel, built against its headers with its own compiler flags. Lines become addresses by \
               the module's debugging information and by where the running kernel has put it; each process of the model is a \
               processor.\n\n";
    section(&mut text, "5. A module on Debian's kernel", why, &[linux]);
    text
}

fn section(text: &mut String, title: &str, before: &str, runs: &[&Run]) {
    let _ = write!(text, "\n## {title}\n\n{before}");
    for run in runs {
        let _ = writeln!(text, "`{}` ({:.0} s):\n", run.shown, run.seconds);
        for line in &run.said {
            let _ = writeln!(text, "- {}", masked(line));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// A line as text of a page: what looks like markup is none.
fn masked(line: &str) -> String {
    line.replace('_', "\\_").replace('*', "\\*").replace('[', "\\[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        assert_eq!(quoted("pipe.c:piperead"), "pipe.c:piperead");
        assert_eq!(quoted("pipe[0].readopen = 1;"), "'pipe[0].readopen = 1;'");
        assert!(is_effort("  265 states, 349 transitions, 2.3 s"));
        assert!(!is_effort("Spin: all 265 states were visited"));
    }
}

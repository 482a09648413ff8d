//! `bench transactions`: what the thesis asked of programs with hardware transactions (Blum 2018, tables 6.1
//! to 6.4), asked of the bundled ones, which were written anew.
//!
//! Bugs: interleavings and seconds until they are found, by iterative deepening and in the maximal space.
//! Verification: the maximal spaces of mended programs of K threads and N iterations each, with each way to
//! explore transactions. Each cell runs the command as its users do, in a process of its own, with one
//! worker; a [`record`] shares the time and keeps what came of it. As in the thesis, the functions that make,
//! end and join threads are trusted.

mod events;
mod record;
mod thesis;

use crate::guests::folder;
use crate::run::Ending;
use ::guests::{Build, Program};
use record::{Answer, Question, Record};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use thesis::{Count, EVENTS, LOCKS, MENDED, Size, Until, WRONG};

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/transactions.md.
    #[arg(long)]
    write: bool,
    /// Processor time for all tables together, with that of earlier runs, which are gone on with; 0 shows
    /// what there is.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Only programs whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

const LIBRARY: &str = include_str!("../../kernels/pebbles-threads.toml");

/// The bundled library's description, with the thread functions trusted.
fn trusted_library() -> String {
    let trusted = "[functions]\ntrusted = [\"thr_create?\", \"thr_exit?\", \"thr_join?\"]";
    LIBRARY.replacen("[functions]", trusted, 1)
}

/// The tables: what they ask, and what they say of the answers.
struct Bench<'a> {
    options: &'a Options,
    built: PathBuf,
    record: Record,
}

fn sized(program: &str, (threads, iterations): Size) -> String {
    format!("{program}_{threads}_{iterations}")
}

/// All programs in all their sizes, and those that iterations are counted with.
fn programs() -> Vec<Program> {
    let wrong = WRONG.iter().flat_map(|(name, _, bugs)| bugs.iter().map(move |bug| (*name, bug.size)));
    let mended = MENDED.iter().flat_map(|(name, spaces)| spaces.iter().map(move |(size, _)| (*name, *size)));
    let locks = LOCKS.iter().flat_map(|(name, spaces)| spaces.iter().map(move |(size, _)| (*name, *size)));
    let counted = EVENTS.iter().flat_map(|(name, _)| [(*name, (2, 1)), (*name, (2, 2))]);
    let all: BTreeSet<(&str, Size)> = wrong.chain(mended).chain(locks).chain(counted).collect();
    let folder = ::guests::sources().join("programs");
    let program = |(name, size): (&str, Size)| Program {
        name: sized(name, size),
        source: format!(
            "#define HTM_THREADS {}\n#define HTM_ITERATIONS {}\n#include \"{}\"\n",
            size.0,
            size.1,
            folder.join(name).with_extension("c").display()
        ),
    };
    all.into_iter().map(program).collect()
}

fn until_shown(until: Until) -> String {
    until
        .map_or_else(|| "–".to_owned(), |(interleavings, seconds)| format!("{interleavings}, {seconds:.0} s"))
}

fn count_shown(count: Count) -> String {
    count.map_or_else(|| "–".to_owned(), |count| count.to_string())
}

const MAXIMAL: [&str; 2] = ["test", "--maximal"];

fn bug(program: &'static str, size: Size, how: &'static str, maximal: bool) -> Question {
    let mut way = if maximal { MAXIMAL.to_vec() } else { vec!["test"] };
    way.extend(["--transactions", how]);
    Question { program, size, way, grows: false }
}

fn space(program: &'static str, size: Size, how: Option<&'static str>) -> Question {
    let way = MAXIMAL.into_iter().chain(how.into_iter().flat_map(|how| ["--transactions", how]));
    Question { program, size, way: way.collect(), grows: true }
}

/// Locks alone are explored as software's transactions; what has none in no way at all.
fn lock_space(program: &'static str, size: Size) -> Question {
    space(program, size, program.starts_with("lock").then_some("stm"))
}

fn reduced_space(program: &'static str, size: Size, strategy: &'static str) -> Question {
    let way = ["explore", "--points", "lock,unlock", "--transactions", "retry", "--strategy", strategy];
    Question { program, size, way: way.to_vec(), grows: true }
}

const WAYS: [&str; 3] = ["retry", "codes", "stm"];
const STRATEGIES: [&str; 2] = ["depth-first", "dpor"];

/// Sizes whose reduction is reported.
fn is_small((threads, iterations): Size) -> bool {
    threads * iterations <= 4
}

/// Everything that the tables ask, in their order.
fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for (name, how, bugs) in WRONG {
        all.extend(
            bugs.iter().flat_map(|wrong| [false, true].map(|maximal| bug(name, wrong.size, how, maximal))),
        );
    }
    for (name, spaces) in MENDED {
        all.extend(spaces.iter().flat_map(|(size, _)| WAYS.map(|how| space(name, *size, Some(how)))));
    }
    for (name, spaces) in MENDED {
        let sizes = spaces.iter().map(|(size, _)| *size).filter(|size| is_small(*size));
        all.extend(sizes.flat_map(|size| STRATEGIES.map(|strategy| reduced_space(name, size, strategy))));
    }
    for (name, spaces) in LOCKS {
        all.extend(spaces.iter().map(|(size, _)| lock_space(name, *size)));
    }
    all
}

impl Bench<'_> {
    fn selects(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// What became of it. Empty: it was not asked.
    fn cell(&self, question: &Question) -> String {
        let Some(answer) = self.record.answer(question) else { return String::new() };
        let Answer { interleavings, seconds, .. } = answer;
        match (&answer.ending, answer.estimate) {
            (Ending::Found(kind), _) => format!("**{kind}** {interleavings}, {seconds:.1} s"),
            (Ending::Exhausted, _) => format!("**{interleavings}**, {seconds:.1} s"),
            (Ending::Failed(why), _) => format!("failed: {why}"),
            (_, Some(all)) => format!("– ({interleavings} of about {all:.0e}, {seconds:.0} s)"),
            (_, None) => format!("– ({interleavings}, {seconds:.0} s)"),
        }
    }

    /// The racing instructions of two threads and one iteration, and the most threads times iterations, of
    /// all spaces of a program that were verified.
    fn verified(&self, program: &str) -> (Option<usize>, usize) {
        let exhausted = |question: &Question| {
            let answer = self.record.answer(question)?;
            let maximal = question.way.starts_with(&MAXIMAL) && question.program == program;
            (maximal && answer.ending == Ending::Exhausted).then_some((question.size, answer.racing))
        };
        let spaces: Vec<(Size, usize)> = questions().iter().filter_map(exhausted).collect();
        let racing = spaces.iter().filter(|(size, _)| *size == (2, 1)).map(|(_, racing)| *racing).max();
        let most = spaces.iter().map(|((threads, iterations), _)| usize::from(threads * iterations)).max();
        (racing, most.unwrap_or(0))
    }
}

fn head(text: &mut String, title: &str, about: &str, columns: &[&str]) {
    let _ = writeln!(text, "\n## {title}\n\n{about}\n");
    let _ = writeln!(text, "| program | {} |", columns.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(columns.len() + 1));
}

pub fn run(options: &Options) -> Result<(), String> {
    let built = folder()?.join("transactions");
    Build::default().image_with(&programs(), &built).map_err(|e| e.to_string())?;
    let library = trusted_library();
    std::fs::write(built.join("trusted.toml"), &library).map_err(|e| e.to_string())?;
    let mut bench = Bench { options, record: Record::open(&built)?, built };
    let mut asked = questions();
    asked.retain(|question| bench.selects(question.program));
    bench.record.ask(&asked, options.hours * 3600.0)?;
    let mut text = String::new();
    bugs(&bench, &mut text);
    verification(&bench, &mut text);
    reduction(&bench, &mut text);
    count_events(&bench, &library, &mut text)?;
    locks(&bench, &mut text);
    print!("{text}");
    if options.write { write_document(&text, &bench) } else { Ok(()) }
}

fn bugs(bench: &Bench<'_>, text: &mut String) {
    head(
        text,
        "Bugs (table 6.1)",
        "Interleavings and seconds until the bug shows, by `rockfall test` (iterative deepening) and by `rockfall test --maximal`. \
         The thesis' seconds are of wall-clock time on eight cores, and its interleavings those of the space in which the bug was; \
         here they are those of all spaces.",
        &["K, N", "deepening", "maximal", "thesis: deepening", "thesis: maximal"],
    );
    for (name, how, bugs) in WRONG.iter().filter(|(name, ..)| bench.selects(name)) {
        for known in *bugs {
            let (threads, iterations) = known.size;
            let cells =
                [false, true].map(|maximal| bench.cell(&bug(name, known.size, how, maximal))).join(" | ");
            let thesis = [known.deepening, known.maximal].map(until_shown).join(" | ");
            let _ = writeln!(text, "| {name} | {threads}, {iterations} | {cells} | {thesis} |");
        }
    }
}

fn verification(bench: &Bench<'_>, text: &mut String) {
    head(
        text,
        "Verification (table 6.2)",
        "Interleavings of the maximal space, which has points at locks, transactions, threads made and woken, and every data race \
         seen, and the seconds of the whole run. The thesis has *retry* without and with retry sets, and *stm*.",
        &["K, N", "retry", "codes", "stm", "thesis: retry", "with retry sets", "stm"],
    );
    for (name, spaces) in MENDED.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, thesis) in *spaces {
            let cells = WAYS.map(|how| bench.cell(&space(name, *size, Some(how)))).join(" | ");
            let thesis = thesis.map(count_shown).join(" | ");
            let _ = writeln!(text, "| {name} | {}, {} | {cells} | {thesis} |", size.0, size.1);
        }
    }
}

fn reduction(bench: &Bench<'_>, text: &mut String) {
    head(
        text,
        "Reduction (retry sets, section 6.2.5)",
        "Interleavings with *retry* and points at locks and transactions alone: all of them, and what reduction leaves. Retry sets \
         have nothing to add here: the outcomes of XBEGIN are choices, and sleep as threads do. Beside it the thesis' reduction, of \
         spaces that also have points at data races.",
        &["K, N", "every interleaving", "reduced", "thesis: without retry sets", "with"],
    );
    for (name, spaces) in MENDED.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, [plain, sets, _]) in spaces.iter().filter(|(size, _)| is_small(*size)) {
            let cells =
                STRATEGIES.map(|strategy| bench.cell(&reduced_space(name, *size, strategy))).join(" | ");
            let thesis = [*plain, *sets].map(count_shown).join(" | ");
            let _ = writeln!(text, "| {name} | {}, {} | {cells} | {thesis} |", size.0, size.1);
        }
    }
}

fn locks(bench: &Bench<'_>, text: &mut String) {
    head(
        text,
        "Locks apart from what uses them (table 6.4)",
        "Elided locks alone, with *stm*; then the data structures with a mutex and no transactions. Interleavings of the maximal \
         space and seconds.",
        &["K, N", "here", "thesis"],
    );
    for (name, spaces) in LOCKS.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, thesis) in *spaces {
            let cell = bench.cell(&lock_space(name, *size));
            let _ = writeln!(text, "| {name} | {}, {} | {cell} | {} |", size.0, size.1, count_shown(*thesis));
        }
    }
}

fn count_events(bench: &Bench<'_>, library: &str, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Events of one iteration (table 6.3)",
        "Transactions, operations on locks in the fallback, and racing instructions in the proof of two threads and one iteration; \
         then all of these in the largest space that was verified in any of the three ways. Spin locks of a program are accesses, not \
         operations on locks. The thesis' numbers are in the same order.",
        &["transactions", "locks", "races", "most events verified", "thesis"],
    );
    for (name, thesis) in EVENTS.iter().filter(|(name, _)| bench.selects(name)) {
        let [one, two] = [(2, 1), (2, 2)].map(|size| sized(name, size));
        let events = events::of_iteration(&bench.built, library, &one, &two)?;
        let (racing, most) = bench.verified(name);
        let all = events.transactions + events.synchronisation + racing.unwrap_or(0);
        let racing = racing.map_or_else(|| "–".to_owned(), |racing| racing.to_string());
        let most = if most == 0 { "–".to_owned() } else { (all * most).to_string() };
        let (transactions, locks) = (events.transactions, events.synchronisation);
        let _ = writeln!(text, "| {name} | {transactions} | {locks} | {racing} | {most} | {thesis} |");
    }
    Ok(())
}

fn write_document(text: &str, bench: &Bench<'_>) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/results/transactions.md");
    let (hours, minutes) = (bench.options.hours, bench.record.cpu_seconds() / 60.0);
    let document = format!(
        "# Programs with transactions\n\nWritten by `cargo run --release -p bench -- transactions --hours {hours} --write`, after \
         {minutes:.0} minutes of processor time for all tables together, with one worker, on a machine that did other work too. The \
         time is shared in rounds: every cell that is not finished goes on, for twice as long each time. Seconds are of wall-clock \
         time. **Bold** is a bug that was found, or a space that was exhausted. – is a search that is not finished, with how far it \
         came; an empty cell was not tried, because a smaller size is not finished. K threads run N iterations each. As in the \
         thesis, the functions that make, end and join threads are trusted (`trusted` in the library's description), and nothing is \
         claimed of what happens inside of them.\n\n\
         The thesis (Blum 2018, chapter 6) had an hour for each bug and ten hours for each verification, on eight cores; – is what it \
         did not finish. Its programs, thread library and kernel are others, so that sizes compare in kind only.\n{text}"
    );
    std::fs::write(&path, document).map_err(|e| format!("{}: {e}", path.display()))
}

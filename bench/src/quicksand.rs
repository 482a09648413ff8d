//! `bench quicksand`: what Quicksand's evaluation asked in 2018 (Blum 2018, 4.5), asked of the bundled
//! guests.
//!
//! Every fault of the catalogue and every correct test, with each strategy, for a fixed time: was the bug
//! found, was the correct test verified, after how many interleavings and seconds. Each cell runs the command
//! as its users do, in a process of its own, and is kept in a file, so that the table can be made in pieces;
//! a cell is made again when the command or the time has changed. Then, over all spaces that were exhausted,
//! how good the forecasts had been.

mod cell;
mod estimates;
mod spaces;

use crate::guests::folder;
use crate::run::Ending;
use ::guests::{Fault, Place};
use cell::{Cell, Kept};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/quicksand.md.
    #[arg(long)]
    write: bool,
    /// Seconds for a cell.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Only rows whose name contains this; of the others what is kept is shown.
    #[arg(long)]
    only: Option<String>,
    /// Show what is kept and run nothing.
    #[arg(long)]
    kept: bool,
    /// Run only what forecasts alone are judged by; of the rest what is kept is shown.
    #[arg(long)]
    forecasts: bool,
}

/// Something to be tested: a fault, or nothing wrong.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub place: Place,
    pub test: String,
    pub fault: Option<Fault>,
    /// The design of the kernel, where it is not the usual one.
    pub design: Option<&'static str>,
}

impl Row {
    /// Faults in the order of the catalogue, then the correct tests.
    fn all() -> Vec<Row> {
        let faults = ::guests::faults();
        let mut seen = BTreeSet::new();
        let mut correct = Vec::new();
        let wrong_as_it_is = |fault: &&Fault| fault.flag.is_none() && !fault.findings.is_empty();
        for fault in faults.iter().filter(|fault| !wrong_as_it_is(fault)) {
            if seen.insert(fault.test.clone()) {
                let (place, test) = (fault.place, fault.test.clone());
                correct.push(Row { name: test.clone(), place, test, fault: None, design: None });
            }
        }
        let wrong = faults.into_iter().filter(|fault| fault.flag.is_some()).map(|fault| Row {
            name: fault.name.clone(),
            place: fault.place,
            test: fault.test.clone(),
            fault: Some(fault),
            design: None,
        });
        wrong.chain(correct).collect()
    }

    /// What its cells are kept under: some tests are named as the fault that they expose.
    fn key(&self) -> String {
        let kind = if self.fault.is_some() { "fault" } else { "correct" };
        format!("{kind}-{}", self.name)
    }

    /// All points of synchronisation that are known beforehand.
    fn synchronisation(&self) -> &'static str {
        match self.place {
            Place::Kernel => "lock,unlock,irq-off,irq-on,create,wake",
            Place::Library | Place::Program => "lock,unlock,create,wake",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    Dpor,
    Icb,
    Everywhere,
    Maximal,
    Limited,
    Pure,
}

impl Strategy {
    const ALL: [Strategy; 6] =
        [Self::Dpor, Self::Icb, Self::Everywhere, Self::Maximal, Self::Limited, Self::Pure];

    const fn name(self) -> &'static str {
        match self {
            Self::Dpor => "dpor",
            Self::Icb => "icb",
            Self::Everywhere => "everywhere",
            Self::Maximal => "maximal",
            Self::Limited => "deepening, limited",
            Self::Pure => "deepening, pure",
        }
    }

    const fn deepens(self) -> bool {
        matches!(self, Self::Limited | Self::Pure)
    }

    /// The command and its options for a row.
    fn arguments(self, row: &Row) -> Vec<String> {
        let points = row.synchronisation();
        let words: Vec<&str> = match self {
            Self::Dpor => vec!["explore", "--strategy", "dpor", "--points", points],
            Self::Icb => vec!["explore", "--strategy", "icb", "--points", points],
            Self::Everywhere => {
                let points = format!("{points},everywhere");
                return ["explore", "--strategy", "dpor", "--points", &points].map(str::to_owned).to_vec();
            }
            Self::Maximal => vec!["test", "--fresh", "--maximal", "--races", "limited"],
            Self::Limited => vec!["test", "--fresh", "--races", "limited"],
            Self::Pure => vec!["test", "--fresh", "--races", "pure"],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

/// How a cell counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// The bug, as the catalogue has it.
    Found,
    /// All of what matters was explored.
    Verified,
    /// All of the space, but the test has data races, whose orders are not in it.
    Partly,
    Neither,
    /// A report where nothing is wrong, or another bug than the one that is there, or no result.
    Wrong,
}

fn mark(row: &Row, strategy: Strategy, cell: &Cell, races: Option<u64>) -> Mark {
    match (&cell.ending, &row.fault) {
        (Ending::Found(kind), Some(fault)) if fault.findings.contains(kind) => Mark::Found,
        (Ending::Found(_) | Ending::Failed(_), _) => Mark::Wrong,
        (Ending::Unfinished, _) => Mark::Neither,
        (Ending::Exhausted, _) => match strategy {
            Strategy::Dpor | Strategy::Icb if races != Some(0) => Mark::Partly,
            _ => Mark::Verified,
        },
    }
}

fn shown(mark: Mark, cell: &Cell) -> String {
    let work = format!("{}, {}", cell.interleavings, seconds(cell.seconds));
    match (mark, &cell.ending) {
        (Mark::Found, _) => format!("**found** {work}"),
        (Mark::Verified, _) => format!("**verified** {work}"),
        (Mark::Partly, _) => format!("exhausted {work}"),
        (Mark::Neither, _) => format!("– {work}"),
        (Mark::Wrong, Ending::Found(kind)) => format!("WRONG: {kind} {work}"),
        (Mark::Wrong, ending) => format!("FAILED: {ending:?}"),
    }
}

/// Seconds with as many digits as matter.
fn seconds(seconds: f64) -> String {
    if seconds < 9.95 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn head(text: &mut String, cells: &[&str]) {
    line(text, &cells.iter().map(ToString::to_string).collect::<Vec<_>>());
    line(text, &vec!["---".to_owned(); cells.len()]);
}

const fn place_name(place: Place) -> &'static str {
    match place {
        Place::Kernel => "kernel",
        Place::Library => "library",
        Place::Program => "program",
    }
}

/// A row with what is known of it.
struct Filled {
    row: Row,
    cells: Vec<Option<(Cell, Mark)>>,
    /// Data races that the test was seen to have, by whichever strategy looked for them.
    races: Option<u64>,
}

pub fn run(options: &Options) -> Result<(), String> {
    let kept = Kept::open(&folder()?.join("quicksand"), options.seconds)?;
    let selected = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut filled = Vec::new();
    for row in Row::all() {
        let runs = !options.kept && !options.forecasts && selected(&row.name);
        let mut cells = Vec::new();
        for strategy in Strategy::ALL {
            let name = format!("{}.{}", row.key(), strategy.name().replace(", ", "-"));
            let arguments = strategy.arguments(&row);
            let cell = kept.cell(&row, &name, &arguments, runs)?;
            if let Some(cell) = cell.as_ref().filter(|_| runs) {
                eprintln!("bench: {name}: {:?} {} {:.1} s", cell.ending, cell.interleavings, cell.seconds);
            }
            cells.push(cell);
        }
        let races = cells.iter().flatten().filter_map(|cell| cell.races).max();
        let marked = cells.into_iter().zip(Strategy::ALL).map(|(cell, strategy)| {
            cell.map(|cell| {
                let mark = mark(&row, strategy, &cell, races);
                (cell, mark)
            })
        });
        filled.push(Filled { cells: marked.collect(), row, races });
    }
    let spaces = spaces::all(&kept, options)?;
    let mut text = String::new();
    summary(&mut text, &filled);
    table(&mut text, "Faults", filled.iter().filter(|filled| filled.row.fault.is_some()));
    table(&mut text, "Correct tests", filled.iter().filter(|filled| filled.row.fault.is_none()));
    partly(&mut text, &filled);
    estimates::write(&mut text, &spaces);
    print!("{text}");
    if options.write { write_document(&text, options) } else { Ok(()) }
}

/// Bugs found and tests verified, by kind and strategy: tables 4.1 and 4.3 of the paper.
fn summary(text: &mut String, rows: &[Filled]) {
    let places = [Place::Kernel, Place::Library, Place::Program];
    for (title, faulty, wanted) in
        [("Bugs found", true, Mark::Found), ("Tests verified", false, Mark::Verified)]
    {
        let _ = writeln!(text, "\n## {title}\n");
        let columns = Strategy::ALL.map(Strategy::name);
        head(text, &[&["", "of"][..], &columns].concat());
        let mut totals = vec![0; Strategy::ALL.len()];
        let mut count_all = 0;
        for place in places {
            let of = || rows.iter().filter(|r| r.row.place == place && r.row.fault.is_some() == faulty);
            let counts: Vec<usize> = (0..Strategy::ALL.len())
                .map(|at| of().filter(|r| r.cells[at].as_ref().is_some_and(|(_, m)| *m == wanted)).count())
                .collect();
            totals.iter_mut().zip(&counts).for_each(|(total, count)| *total += count);
            count_all += of().count();
            let cells = [place_name(place).to_owned(), of().count().to_string()];
            line(text, &[&cells[..], &counts.iter().map(usize::to_string).collect::<Vec<_>>()].concat());
        }
        let cells = ["all".to_owned(), count_all.to_string()];
        line(text, &[&cells[..], &totals.iter().map(usize::to_string).collect::<Vec<_>>()].concat());
        let best = |deepens: bool| {
            let counted = Strategy::ALL.iter().zip(&totals).filter(|(s, _)| s.deepens() == deepens);
            counted.map(|(_, total)| *total).max().unwrap_or(0)
        };
        let holds = best(true) >= best(false);
        let _ = writeln!(
            text,
            "\nIterative deepening: {}; the best of the others: {}.{}",
            best(true),
            best(false),
            if holds { "" } else { " **It should be at least as many.**" }
        );
        missed(text, rows, faulty, wanted);
    }
    let wrong = rows.iter().flat_map(|r| r.cells.iter().flatten()).filter(|(_, m)| *m == Mark::Wrong).count();
    let _ = writeln!(text, "\nWrong reports, or none at all: {wrong}.");
}

/// What some other strategy can and neither kind of iterative deepening could.
fn missed(text: &mut String, rows: &[Filled], faulty: bool, wanted: Mark) {
    for filled in rows.iter().filter(|filled| filled.row.fault.is_some() == faulty) {
        let by = |deepens: bool| -> Vec<&str> {
            let cells = filled.cells.iter().zip(Strategy::ALL);
            let able = cells.filter(|(cell, strategy)| {
                strategy.deepens() == deepens && cell.as_ref().is_some_and(|(_, mark)| *mark == wanted)
            });
            able.map(|(_, strategy)| strategy.name()).collect()
        };
        if by(true).is_empty() && !by(false).is_empty() {
            let _ = writeln!(text, "- {}: only by {}", filled.row.name, by(false).join(", "));
        }
    }
}

/// What iterative deepening exhausted of tests that it could not verify: table 4.3 of the paper.
fn partly(text: &mut String, rows: &[Filled]) {
    let _ = writeln!(
        text,
        "\n## Tests verified in part\n\nWhat iterative deepening, limited, exhausted of the correct tests that it did not \
         verify: state spaces; of these, sets of points that it begins with; racing instructions with a point in some \
         exhausted space.\n"
    );
    head(text, &["", "of", "state spaces", "to begin with", "racing instructions"]);
    let mut counts = Vec::new();
    let column = Strategy::ALL.iter().position(|strategy| *strategy == Strategy::Limited);
    for filled in rows.iter().filter(|filled| filled.row.fault.is_none()) {
        let Some((cell, Mark::Neither)) = column.and_then(|at| filled.cells[at].as_ref()) else { continue };
        let Some(spaces) = &cell.spaces else { continue };
        counts.push(spaces.exhausted);
        let cells = [
            filled.row.name.clone(),
            place_name(filled.row.place).to_owned(),
            spaces.exhausted.to_string(),
            format!("{} of {}", spaces.initial_exhausted, spaces.initial),
            format!("{} of {}", spaces.racing_exhausted, spaces.racing),
        ];
        line(text, &cells);
    }
    let mean = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
    let _ = writeln!(
        text,
        "\n{mean:.0} state spaces on average. In 2018, with an hour on ten cores: 8 to 112, depending on the test."
    );
}

fn table<'a>(text: &mut String, title: &str, rows: impl Iterator<Item = &'a Filled>) {
    let _ = writeln!(text, "\n## {title}\n");
    let columns = Strategy::ALL.map(Strategy::name);
    head(text, &[&["", "of", "races"][..], &columns].concat());
    for filled in rows {
        let name = match &filled.row.fault {
            Some(fault) => format!("{} ({})", fault.name, fault.test),
            None => filled.row.name.clone(),
        };
        let races = filled.races.map_or_else(String::new, |races| races.to_string());
        let mut cells = vec![name, place_name(filled.row.place).to_owned(), races];
        cells.extend(
            filled
                .cells
                .iter()
                .map(|cell| cell.as_ref().map_or_else(String::new, |(cell, mark)| shown(*mark, cell))),
        );
        line(text, &cells);
    }
}

fn write_document(text: &str, options: &Options) -> Result<(), String> {
    let text = format!(
        "# Quicksand's evaluation, again\n\n\
         Written by `cargo run --release -p bench -- quicksand --seconds {} --write`: {} seconds and two workers for each \
         cell. Load of the host when it was written: {}. A cell has the outcome, the interleavings and the seconds.\n\n\
         - *dpor*, *icb*: one space with all points of synchronisation (kernel: locks, interrupts off and on, threads \
         created and woken; programs: locks, threads created and woken). Exhausting it verifies a test only if that has no \
         data races at all; else the cell says *exhausted*, as in section 4.5.3 of the paper.\n\
         - *everywhere*: dpor with these points and every shared access.\n\
         - *maximal*: these points and all data races known, at once (`rockfall test --maximal`).\n\
         - *deepening*: `rockfall test`, with limited and with pure happens-before.\n{text}",
        options.seconds,
        options.seconds,
        crate::landslide::load()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/quicksand.md");
    std::fs::write(&path, text.trim_end().to_owned() + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

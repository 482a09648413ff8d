//! The limits by which Rockfall judges, each with a name: how many yields are too many, how long a loop may
//! be, when an estimate counts.
//!
//! Contract: a number has the papers' value, or one for a reason that [`TABLE`] gives; a description may have
//! another under `[limits]`, and `--set NAME=VALUE` has the last word. What was changed goes into findings,
//! so that a replay judges alike. Source: Blum 2012, 5.3.2 and Blum 2018, 3.4.6 and 4.3; see also
//! `docs/coverage.md`.

use crate::failure::Failure;
use detect::Constants;
use explore::jobs::Heuristics;
use guest::driving::uniprocessor::Patience;
use std::collections::BTreeMap;

/// Between two points that are no single accesses lie at least about so many instructions.
const POINT_INSTRUCTIONS: u64 = 8;

/// The limits that were changed, by name.
pub type Changes = BTreeMap<String, u64>;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    pub constants: Constants,
    /// The value of [`Constants::first_points_max`] where points are single accesses.
    pub first_points_everywhere: u64,
    pub patience: Patience,
    pub heuristics: Heuristics,
}

/// A limit: its name, the papers' value, where it is kept, and what it means.
struct Limit {
    name: &'static str,
    paper: &'static str,
    get: fn(&Limits) -> u64,
    set: fn(&mut Limits, u64),
    says: &'static str,
}

macro_rules! limit {
    ($name:literal, $paper:literal, $($field:ident).+: $type:ty, $says:literal) => {
        Limit {
            name: $name,
            paper: $paper,
            get: |limits| limits.$($field).+ as u64,
            set: |limits, value| limits.$($field).+ = value as $type,
            says: $says,
        }
    };
}

const TABLE: &[Limit] = &[
    limit!(
        "loop-instructions-factor",
        "2000, kernels 4000",
        constants.instructions_factor: u64,
        "instructions without a preemption point that are an endless loop, times the average"
    ),
    limit!(
        "loop-instructions-floor",
        "1000",
        constants.instructions_average_min: u64,
        "that average counts as at least so much"
    ),
    limit!(
        "loop-points-factor",
        "20",
        constants.points_factor: u64,
        "preemption points of an execution that are an endless loop, times the average"
    ),
    limit!(
        "loop-confident-after",
        "10 to 20",
        constants.confident_after: u32,
        "executions before which these limits are larger, by a tenth for each one missing"
    ),
    limit!(
        "loop-first-points",
        "4000",
        constants.first_points_max: u64,
        "points of the first execution (kernels have more: many turn interrupts off and on for each character they print)"
    ),
    limit!(
        "loop-first-points-everywhere",
        "1048576",
        first_points_everywhere: u64,
        "the same where points are single accesses"
    ),
    limit!(
        "loop-first-instructions",
        "-",
        constants.first_instructions_max: u64,
        "instructions without a point in the first execution"
    ),
    limit!(
        "kernel-yields",
        "10",
        patience.kernel_yields_max: u32,
        "yields without progress after which a thread of a kernel is taken to wait"
    ),
    limit!(
        "program-yields",
        "10",
        patience.program_yields_max: u32,
        "the same of a program's thread (more: one that comes back to the same state is known to wait without counting)"
    ),
    limit!(
        "tries",
        "100",
        patience.tries_max: u32,
        "atomic instructions that change nothing after which a program's thread is taken to wait"
    ),
    limit!(
        "tries-between-points",
        "20",
        patience.tries_between_points_max: u32,
        "the same where there are points in between"
    ),
    limit!(
        "retries",
        "128",
        patience.retries_max: u32,
        "how often threads that were taken to wait are tried again before that is a deadlock"
    ),
    limit!(
        "estimate-factor",
        "2",
        heuristics.estimate_factor: u32,
        "a state space is too large if its estimate exceeds what is left of the budget by this factor"
    ),
    limit!(
        "interleavings-before-suspending",
        "32",
        heuristics.interleavings_min: u64,
        "before so many its estimate does not count"
    ),
];

impl Limits {
    /// The limits for a kernel or, if `program`, for a program on a trusted kernel.
    pub const fn new(program: bool) -> Self {
        let constants = if program { Constants::user() } else { Constants::kernel() };
        let first_points_everywhere = constants.everywhere().first_points_max;
        let (patience, heuristics) = (Patience::DEFAULT, Heuristics::DEFAULT);
        Self { constants, first_points_everywhere, patience, heuristics }
    }

    /// The limits of [`Limits::new`] with these changes.
    pub fn changed(program: bool, changes: &Changes) -> Result<Self, Failure> {
        let mut limits = Self::new(program);
        for (name, value) in changes {
            let limit = find(name)?;
            (limit.set)(&mut limits, *value);
            if (limit.get)(&limits) != *value {
                return Err(Failure::BadFlag(format!("{value} is too large for the limit '{name}'")));
            }
        }
        Ok(limits)
    }

    /// These limits once a run in which nobody was preempted has come to its end after so many instructions:
    /// the first execution of a space is that run, however many points it passes. What was `changed` stays.
    #[must_use]
    pub fn after_run(mut self, instructions: Option<u64>, changed: &Changes) -> Self {
        const NAME: &str = "loop-first-points";
        if let (Some(instructions), false) = (instructions, changed.contains_key(NAME)) {
            let points = &mut self.constants.first_points_max;
            *points = (*points).max(instructions / POINT_INSTRUCTIONS);
        }
        self
    }

    /// The constants by which endless loops are recognised, where points are single accesses or not.
    pub const fn constants(&self, single_accesses: bool) -> Constants {
        let first_points_max = match single_accesses {
            true => self.first_points_everywhere,
            false => self.constants.first_points_max,
        };
        Constants { first_points_max, ..self.constants }
    }

    /// A table with every limit in a line of its own.
    pub fn table(&self, program: bool) -> String {
        let usual = Self::new(program);
        let mut text = format!("{:33}{:>10}{:>10}  {:19} \n", "limit", "value", "default", "papers");
        for limit in TABLE {
            let (now, default) = ((limit.get)(self), (limit.get)(&usual));
            text += &format!("{:33}{now:>10}{default:>10}  {:19} {}\n", limit.name, limit.paper, limit.says);
        }
        text
    }
}

fn find(name: &str) -> Result<&'static Limit, Failure> {
    TABLE.iter().find(|limit| limit.name == name).ok_or_else(|| {
        let names: Vec<&str> = TABLE.iter().map(|limit| limit.name).collect();
        Failure::BadFlag(format!("there is no limit '{name}'; there are {}", names.join(", ")))
    })
}

/// Reads `NAME=VALUE` from a command line.
pub fn parse_change(text: &str) -> Result<(String, u64), String> {
    let error =
        || format!("'{text}' sets no limit; write NAME=VALUE, such as retries=64 (--show-limits lists all)");
    let (name, value) = text.split_once('=').ok_or_else(error)?;
    let value: u64 = value.trim().parse().map_err(|_| error())?;
    if value == 0 {
        return Err(format!("'{text}': a limit is at least 1"));
    }
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_can_be_set() {
        for (at, limit) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.name != limit.name), "{}", limit.name);
            let changes = Changes::from([(limit.name.to_owned(), 77)]);
            let changed = Limits::changed(false, &changes).unwrap_or_else(|_| panic!("{}", limit.name));
            assert_eq!((limit.get)(&changed), 77, "{}", limit.name);
            let others = TABLE.iter().filter(|other| other.name != limit.name);
            let usual = Limits::new(false);
            assert!(others.into_iter().all(|other| (other.get)(&changed) == (other.get)(&usual)));
        }
    }

    /// A test that asks for the time in a loop passes hundreds of thousands of points and ends.
    #[test]
    fn a_run_that_ended_is_no_endless_loop() {
        let first_points = |instructions, changes: &[(&str, u64)]| {
            let changes = changes.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let limits = Limits::changed(false, &changes).unwrap_or_else(|_| panic!("a known name"));
            limits.after_run(instructions, &changes).constants.first_points_max
        };
        assert_eq!(first_points(None, &[]), 1 << 16);
        assert_eq!(first_points(Some(100_000), &[]), 1 << 16);
        assert_eq!(first_points(Some(8_000_000), &[]), 1_000_000);
        assert_eq!(first_points(Some(8_000_000), &[("loop-first-points", 77)]), 77);
    }

    #[test]
    fn the_papers_values_are_the_defaults_of_programs() {
        let table = Limits::new(true).table(true);
        for (name, value) in [("loop-instructions-factor", "2000"), ("loop-first-points", "4000")] {
            let line = table.lines().find(|line| line.split_whitespace().next() == Some(name)).expect(name);
            assert_eq!(line.split_whitespace().nth(1), Some(value), "{line}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        assert_eq!(parse_change("retries=64"), Ok(("retries".to_owned(), 64)));
        for text in ["retries", "retries=", "retries=0", "retries=-1", "retries=many"] {
            assert!(parse_change(text).is_err(), "{text}");
        }
        for (name, value) in [("retires", 1), ("retries", u64::MAX)] {
            assert!(Limits::changed(false, &Changes::from([(name.to_owned(), value)])).is_err(), "{name}");
        }
    }
}

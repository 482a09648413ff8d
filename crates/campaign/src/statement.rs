//! What a run of `rockfall test` says at its end: what was verified, what was not and how far that came.
//!
//! Every sentence claims what was proved and no more. A run makes hundreds of state spaces that differ in one racing
//! instruction: spaces of a kind are told together, and each of them alone is among the events of `--json`.

use crate::campaign::Campaign;
use crate::target::Target;
use crate::unmet::is_met;
use crate::words::{bounded, counted, in_number, name, standing};
use detect::RaceStatus;
use explore::jobs::{Job, JobId, Plan, Purpose, State};
use guest::hooks::kernel::Kernel;
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{PointRule, PointSet, VirtAddr};

/// How many places are named in one line.
const PLACES_TOLD_MAX: usize = 8;
/// How many names of what the description ignores are told.
const IGNORED_TOLD_MAX: usize = 5;

/// Why the run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Bug,
    /// Nothing is left to do.
    Done,
    Stopped,
    Late,
    /// What is left cannot be explored.
    GivenUp,
    /// What is left was explored up to a bound.
    Bounded,
}

pub struct Statement<'a> {
    pub what: String,
    pub plan: &'a Plan,
    pub seconds: f64,
    pub ending: Ending,
    /// What one run of the test takes, where that was counted.
    pub instructions: Option<u64>,
    /// How many bugs were reported and set aside before.
    pub aside: usize,
    /// Whether data races were looked for.
    pub races: bool,
    /// Functions in which no preemption was tried.
    pub sealed: Vec<Arc<str>>,
    /// Functions that are taken to be right.
    pub trusted: Vec<Arc<str>>,
    /// Functions and variables that the description ignores.
    pub ignored: Vec<Arc<str>>,
    /// Rules of exhausted spaces whose points nobody stood at.
    pub unmet: Vec<PointRule>,
    /// The function and line of an instruction.
    pub place: Box<dyn Fn(VirtAddr) -> String + 'a>,
}

/// Spaces that differ only in which instructions race.
struct Kind<'a> {
    /// The points of the set apart from racing instructions.
    base: PointSet,
    races: usize,
    jobs: Vec<&'a Job>,
}

fn raced(rule: &PointRule) -> Option<VirtAddr> {
    match rule {
        PointRule::Race { pc, .. } => Some(*pc),
        _ => None,
    }
}

fn kinds<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<Kind<'a>> {
    let mut kinds: Vec<Kind<'a>> = Vec::new();
    for job in jobs {
        let races = job.points.rules.iter().filter_map(raced).count();
        let rules = job.points.rules.iter().filter(|rule| raced(rule).is_none()).cloned().collect();
        let base = PointSet { rules, ..job.points.clone() };
        match kinds.iter_mut().find(|kind| kind.races == races && kind.base == base) {
            Some(kind) => kind.jobs.push(job),
            None => kinds.push(Kind { base, races, jobs: vec![job] }),
        }
    }
    kinds.sort_by_key(|kind| kind.races);
    kinds
}

impl<'a> Statement<'a> {
    /// What a campaign claims that ended in this way.
    pub fn of(campaign: &'a Campaign<'a>, target: &Target, ending: Ending) -> Self {
        let code = campaign.code();
        let tested = target.kernel.tested.as_ref();
        Self {
            what: target.what(),
            plan: &campaign.plan,
            seconds: campaign.seconds(),
            instructions: None,
            ending,
            aside: campaign.told().len(),
            races: campaign.looks_for_races(),
            sealed: tested.map_or_else(Vec::new, |tested| tested.sealed.to_vec()),
            trusted: target.kernel.trusted_functions().to_vec(),
            ignored: target.kernel.ignored_names.clone(),
            unmet: unmet(campaign, &target.kernel),
            place: Box::new(|pc| code.place(pc)),
        }
    }
}

/// The rules of what was exhausted whose points nobody stood at.
fn unmet(campaign: &Campaign<'_>, kernel: &Kernel) -> Vec<PointRule> {
    let (rules, met) = campaign.met();
    rules.into_iter().filter(|rule| !is_met(rule, kernel, &met)).collect()
}

impl Statement<'_> {
    /// The whole statement except the races themselves.
    pub fn text(&self) -> String {
        let mut lines = self.opening();
        self.left_out(&mut lines);
        self.exhausted(&mut lines);
        self.never_met(&mut lines);
        self.unfinished(&mut lines);
        self.given_up(&mut lines);
        lines.push(self.races());
        lines.join("\n") + "\n"
    }

    fn name(&self, points: &PointSet) -> String {
        name(points, &*self.place)
    }

    fn opening(&self) -> Vec<String> {
        let what = &self.what;
        let none = if self.aside == 0 { "no bug" } else { "no further bug" };
        let mut lines = match self.ending {
            Ending::Bug => {
                let mut lines = vec!["\nThe search ended with the bug.".to_owned()];
                lines.extend(
                    self.plan
                        .jobs()
                        .iter()
                        .rfind(|job| job.state == State::Buggy)
                        .map(|job| self.searched(job)),
                );
                lines
            }
            Ending::Done => vec![format!("{what}: {none}, and all that is known to matter is exhausted")],
            Ending::GivenUp => {
                vec![format!("{what}: {none} found, but this is no proof (what is left cannot be explored)")]
            }
            Ending::Bounded => {
                vec![format!("{what}: {none} found, but this is no proof (a bound decides, see below)")]
            }
            Ending::Stopped | Ending::Late => {
                let why = if self.ending == Ending::Stopped { "stopped" } else { "time is up" };
                vec![
                    format!("{what}: {none} found, but this is no proof ({why})"),
                    "  The same command again goes on from here.".to_owned(),
                ]
            }
        };
        if self.aside > 0 {
            let (bugs, were) = (counted(self.aside, "bug"), if self.aside == 1 { "was" } else { "were" });
            lines.push(format!("  {bugs} {were} told and set aside"));
        }
        let interleavings: u64 = self.plan.jobs().iter().map(|job| job.standing.interleavings).sum();
        let (interleavings, seconds) = (in_number(interleavings), self.seconds);
        let spaces = counted(self.plan.jobs().len(), "state space");
        let races = counted(self.plan.races().iter().count(), "data race");
        let seen = if self.races { format!("; {races} seen") } else { String::new() };
        lines.push(format!("  {interleavings} in {spaces}, {seconds:.1} s{seen}"));
        let long = |count| format!("  One run of the test takes {} instructions.", report::grouped(count));
        lines.extend(self.instructions.map(long));
        if let Some(job) = self.plan.completed_by() {
            let interleavings = in_number(job.standing.interleavings);
            lines.push(format!("  The proof: {}: {interleavings}", self.name(&job.points)));
        }
        lines
    }

    /// How much was explored of the space that has the bug, and how large that is expected to be.
    fn searched(&self, job: &Job) -> String {
        let (name, n) = (bounded(job, &*self.place), job.standing.interleavings);
        let share = job.standing.explored;
        let size = if n > 1 && share > 0.0 {
            let (percent, all) = (100.0 * share, n as f64 / share);
            format!(", about {percent:.1} % of {all:.0} in that space")
        } else {
            ", too early to say how large that space is".to_owned()
        };
        format!("  It showed with {name}, after {}{size}", in_number(n))
    }

    /// Adds the points that no space has, so that nothing that follows is about them.
    fn left_out(&self, lines: &mut Vec<String>) {
        if !self.sealed.is_empty() {
            lines.push(format!("No preemption was tried inside of {} (sealed).", self.sealed.join(", ")));
        }
        let trusted: Vec<&str> =
            self.trusted.iter().filter(|name| !self.sealed.contains(name)).map(AsRef::as_ref).collect();
        if !trusted.is_empty() {
            lines.push(format!(
                "Nothing is claimed of what happens inside of {} (trusted).",
                trusted.join(", ")
            ));
        }
        if !self.ignored.is_empty() {
            let told = self.ignored[..self.ignored.len().min(IGNORED_TOLD_MAX)].join(", ");
            let more = match self.ignored.len().saturating_sub(IGNORED_TOLD_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!(
                "Accesses by or to {told}{more} were not looked at (ignored by the description)."
            ));
        }
    }

    fn exhausted(&self, lines: &mut Vec<String>) {
        let bug = if self.aside == 0 { "a bug" } else { "a further bug" };
        let head = format!("Exhausted, up to the order of independent steps, without {bug}");
        if self.plan.is_complete() {
            let races = if self.races { ", and at every data race seen" } else { "" };
            lines.push(format!("{head}:"));
            let points = self.name(&self.plan.beforehand());
            lines.push(format!("  all interleavings with preemptions at {points}{races}"));
            return;
        }
        let kinds = kinds(self.plan.verified());
        if !kinds.is_empty() {
            lines.push(format!("{head}, each for preemptions at its own points:"));
        }
        lines.extend(kinds.iter().map(|kind| self.kind(kind)));
        let swept: Vec<&Job> = self.plan.swept().collect();
        if !swept.is_empty() {
            lines.push("Exhausted likewise, but for more preemptions than told:".to_owned());
        }
        lines.extend(swept.iter().map(|job| {
            format!("  {}: {}", bounded(job, &*self.place), in_number(job.standing.interleavings))
        }));
    }

    /// Adds the points that the test did not come to, so that nothing that was exhausted is about them.
    fn never_met(&self, lines: &mut Vec<String>) {
        if self.unmet.is_empty() || self.ending == Ending::Bug {
            return;
        }
        let mut points: Vec<String> =
            self.unmet.iter().filter(|rule| raced(rule).is_none()).map(ToString::to_string).collect();
        let races: BTreeSet<VirtAddr> = self.unmet.iter().filter_map(raced).collect();
        if !races.is_empty() {
            points.push(format!("racing instructions in {}", self.places(races)));
        }
        lines.push(format!(
            "Never met: nobody was preempted at {}: this test does not come there, or only where no tick can be taken.",
            points.join(", ")
        ));
    }

    /// One line for spaces of a kind.
    fn kind(&self, kind: &Kind<'_>) -> String {
        let interleavings = in_number(kind.jobs.iter().map(|job| job.standing.interleavings).sum());
        if let [job] = kind.jobs[..] {
            return format!("  {}: {interleavings}", self.name(&job.points));
        }
        let with = if kind.base.rules.is_empty() { String::new() } else { self.name(&kind.base) + " with " };
        let spaces = kind.jobs.len();
        if kind.races > 1 {
            let races = kind.races;
            return format!("  {with}{races} racing instructions: {spaces} state spaces, {interleavings}");
        }
        let raced = kind.jobs.iter().flat_map(|job| job.points.rules.iter().filter_map(raced));
        let places = self.places(raced.collect());
        format!("  {with}one racing instruction: {spaces} state spaces, {interleavings}: in {places}")
    }

    /// Instructions by their places, each place once.
    fn places(&self, pcs: BTreeSet<VirtAddr>) -> String {
        let mut places: Vec<(String, usize)> = Vec::new();
        for place in pcs.into_iter().map(&self.place) {
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => places.push((place, 1)),
            }
        }
        let more = places.len().saturating_sub(PLACES_TOLD_MAX);
        let told = places.iter().take(PLACES_TOLD_MAX).map(|(place, count)| match count {
            1 => place.clone(),
            _ => format!("{place} ×{count}"),
        });
        let told = told.collect::<Vec<_>>().join(", ");
        if more == 0 { told } else { format!("{told} and {more} more places") }
    }

    fn unfinished(&self, lines: &mut Vec<String>) {
        // Beside a proof these are of no interest.
        if self.plan.is_complete() {
            return;
        }
        let open: Vec<(JobId, &Job)> = (0..self.plan.jobs().len())
            .map(|at| (JobId(at), self.plan.job(JobId(at))))
            .filter(|(_, job)| job.state.is_open())
            .collect();
        let pending = open.iter().filter(|(_, job)| job.state == State::Pending).count();
        let begun = open.len() - pending;
        if open.is_empty() {
            return;
        }
        if self.ending == Ending::Bug {
            lines.push(format!(
                "Not exhausted: {}, {pending} of them not begun.",
                counted(open.len(), "state space")
            ));
            return;
        }
        lines.push("Not exhausted:".to_owned());
        let own = |(id, job): &&(JobId, &Job)| {
            let first = matches!(job.purpose, Purpose::Initial | Purpose::Sweep);
            job.state != State::Pending && (first || self.plan.is_proof(*id))
        };
        let told: Vec<&(JobId, &Job)> = open.iter().filter(own).collect();
        lines.extend(
            told.iter().map(|(_, job)| format!("  {}: {}", bounded(job, &*self.place), standing(job))),
        );
        let others = || open.iter().filter(|known| !own(known) && known.1.state != State::Pending);
        let furthest = others().map(|(_, job)| job.standing.explored).fold(0.0, f64::max);
        if let Some(more @ 1..) = begun.checked_sub(told.len()) {
            let spaces = counted(more, "state space");
            let percent = 100.0 * furthest;
            lines.push(format!(
                "  {spaces} with racing instructions, begun; the furthest is at {percent:.1} %"
            ));
        }
        if pending > 0 {
            lines.push(format!("  {}, not begun", counted(pending, "state space")));
        }
    }

    /// Adds the spaces that were given up, grouped by the reason, which most often is the same for all.
    fn given_up(&self, lines: &mut Vec<String>) {
        let mut reasons: Vec<(&str, Vec<&Job>)> = Vec::new();
        for job in self.plan.jobs() {
            let (State::GivenUp { why } | State::Bounded { why }) = &job.state else { continue };
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, jobs)) => jobs.push(job),
                None => reasons.push((why, vec![job])),
            }
        }
        for (why, jobs) in reasons {
            let more = match jobs.len() - 1 {
                0 => String::new(),
                more => format!(" and {}", counted(more, "more state space")),
            };
            let bounded = matches!(jobs[0].state, State::Bounded { .. });
            let head = if bounded { "Bounded" } else { "Given up" };
            lines.push(format!("{head}: {}{more}: {why}", self.name(&jobs[0].points)));
        }
    }

    fn races(&self) -> String {
        if !self.races {
            return "Data races were not looked for.".to_owned();
        }
        let races = self.plan.races();
        let count = |status| races.iter().filter(|known| known.status == status).count();
        let (failing, benign, untested) =
            (count(RaceStatus::Failing), count(RaceStatus::Benign), count(RaceStatus::Untested));
        match self.ending {
            Ending::Done if untested == 0 => {
                "Data races: all that were seen are harmless in what was exhausted.".to_owned()
            }
            Ending::Bug => format!(
                "Data races: {failing} leading to the bug, {benign} without harm in the spaces exhausted, {untested} untested."
            ),
            _ => {
                format!("Data races: {benign} without harm in the spaces exhausted, {untested} untested.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use detect::{Race, RaceSide};
    use expect_test::{Expect, expect};
    use explore::jobs::{Capacity, JobProgress, Mode, Outcome, Proof};
    use trace::{AccessKind, ThreadId};

    fn race(first: u64, second: u64) -> Race {
        let side = |thread, pc| RaceSide::bare(ThreadId(thread), VirtAddr(pc), AccessKind::Write);
        Race { first: side(1, first), second: side(2, second), addr: VirtAddr(0), size: 4 }
    }

    /// A plan in which jobs were reported as told: points, interleavings, and the part explored (1: exhausted).
    fn plan(races: &[(u64, u64)], reports: &[(&str, u64, f64)]) -> Plan {
        let initial = ["", "lock", "unlock"].map(|points| points.parse().expect("points"));
        let mut plan = Plan::new(Mode::Deepening, Proof::Races, initial);
        for (first, second) in races {
            plan.saw(JobId(0), [&race(*first, *second), &race(*second, *first)], true);
        }
        for (points, interleavings, explored) in reports {
            let points: PointSet = points.parse().expect("points");
            let id = plan.jobs().iter().position(|job| job.points == points).expect("a job");
            if *explored < 1.0 {
                let others = (0..plan.jobs().len()).map(JobId).filter(|other| other.0 != id);
                assert_eq!(
                    plan.next(Capacity { seconds: 60.0, cores: 1 }, &others.collect()),
                    Some(JobId(id)),
                    "{points} is begun"
                );
            }
            let standing =
                JobProgress { interleavings: *interleavings, explored: *explored, ..JobProgress::default() };
            let outcome = if *explored == 1.0 { Outcome::Exhausted } else { Outcome::GoesOn };
            plan.report(JobId(id), standing, outcome);
        }
        plan
    }

    fn check(plan: &Plan, ending: Ending, expected: Expect) {
        check_with(plan, &[], ending, expected);
    }

    fn check_with(plan: &Plan, unmet: &[&str], ending: Ending, expected: Expect) {
        let place = |pc: VirtAddr| format!("f{} (a.c:{})", pc.0 / 16, pc.0 / 2);
        let (sealed, trusted) = (["malloc".into()], ["malloc".into(), "mutex_lock".into()]);
        let what = "test x of y".to_owned();
        let statement = Statement {
            aside: 0,
            what,
            plan,
            seconds: 1.5,
            instructions: Some(96_000),
            ending,
            races: true,
            sealed: sealed.to_vec(),
            trusted: trusted.to_vec(),
            ignored: (1..=8).map(|number| Arc::from(format!("v{number}"))).collect(),
            unmet: unmet.iter().map(|rule| rule.parse().expect("a rule")).collect(),
            place: Box::new(place),
        };
        expected.assert_eq(&statement.text());
    }

    const RACES: [(u64, u64); 2] = [(0x10, 0x11), (0x20, 0x30)];

    #[test]
    fn spaces_of_a_kind_are_told_together() {
        let reports = [
            ("lock", 9, 1.0),
            ("race:0x10", 2, 1.0),
            ("race:0x11", 3, 1.0),
            ("race:0x20", 4, 1.0),
            ("unlock", 40, 0.25),
            ("race:0x30", 7, 0.5),
        ];
        check(
            &plan(&RACES, &reports),
            Ending::Late,
            expect![[r#"
                test x of y: no bug found, but this is no proof (time is up)
                  The same command again goes on from here.
                  65 interleavings in 8 state spaces, 1.5 s; 2 data races seen
                  One run of the test takes 96,000 instructions.
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
                  lock: 9 interleavings
                  one racing instruction: 3 state spaces, 9 interleavings: in f1 (a.c:8) ×2, f2 (a.c:16)
                Not exhausted:
                  unlock: 40 interleavings, 25.0 %, unknown time left
                  1 state space with racing instructions, begun; the furthest is at 50.0 %
                  1 state space, not begun
                Data races: 1 without harm in the spaces exhausted, 1 untested.
            "#]],
        );
        check(
            &plan(&RACES, &reports),
            Ending::Bug,
            expect![[r#"

                The search ended with the bug.
                  65 interleavings in 8 state spaces, 1.5 s; 2 data races seen
                  One run of the test takes 96,000 instructions.
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
                  lock: 9 interleavings
                  one racing instruction: 3 state spaces, 9 interleavings: in f1 (a.c:8) ×2, f2 (a.c:16)
                Not exhausted: 3 state spaces, 1 of them not begun.
                Data races: 0 leading to the bug, 1 without harm in the spaces exhausted, 1 untested.
            "#]],
        );
    }

    #[test]
    fn a_proof_is_told_as_one() {
        let all = "lock,unlock,race:0x10,race:0x11,race:0x20,race:0x30";
        check(
            &plan(&RACES, &[(all, 99, 1.0)]),
            Ending::Done,
            expect![[r#"
                test x of y: no bug, and all that is known to matter is exhausted
                  99 interleavings in 8 state spaces, 1.5 s; 2 data races seen
                  One run of the test takes 96,000 instructions.
                  The proof: lock, unlock, 4 racing instructions: 99 interleavings
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Exhausted, up to the order of independent steps, without a bug:
                  all interleavings with preemptions at lock, unlock, and at every data race seen
                Data races: all that were seen are harmless in what was exhausted.
            "#]],
        );
    }

    #[test]
    fn points_that_nobody_came_to_are_named() {
        check_with(
            &plan(&RACES, &[("lock", 9, 1.0), ("race:0x10", 2, 1.0), ("race:0x11", 3, 1.0)]),
            &["lock", "fn:f7", "race:0x10", "race:0x11"],
            Ending::Late,
            expect![[r#"
                test x of y: no bug found, but this is no proof (time is up)
                  The same command again goes on from here.
                  14 interleavings in 8 state spaces, 1.5 s; 2 data races seen
                  One run of the test takes 96,000 instructions.
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
                  lock: 9 interleavings
                  one racing instruction: 2 state spaces, 5 interleavings: in f1 (a.c:8) ×2
                Never met: nobody was preempted at lock, fn:f7, racing instructions in f1 (a.c:8) ×2: this test does not come there, or only where no tick can be taken.
                Not exhausted:
                  4 state spaces, not begun
                Data races: 1 without harm in the spaces exhausted, 1 untested.
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_explored_is_no_matter_of_time() {
        let mut plan = plan(&[], &[]);
        for id in (0..plan.jobs().len()).map(JobId) {
            let why = "the machine does not know this".to_owned();
            plan.report(id, JobProgress::default(), Outcome::GivenUp { why });
        }
        check(
            &plan,
            Ending::GivenUp,
            expect![[r#"
                test x of y: no bug found, but this is no proof (what is left cannot be explored)
                  0 interleavings in 4 state spaces, 1.5 s; 0 data races seen
                  One run of the test takes 96,000 instructions.
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Given up: voluntary switches only and 3 more state spaces: the machine does not know this
                Data races: 0 without harm in the spaces exhausted, 0 untested.
            "#]],
        );
    }

    #[test]
    fn nothing_done_is_nothing_claimed() {
        check(
            &plan(&RACES, &[]),
            Ending::Stopped,
            expect![[r#"
                test x of y: no bug found, but this is no proof (stopped)
                  The same command again goes on from here.
                  0 interleavings in 8 state spaces, 1.5 s; 2 data races seen
                  One run of the test takes 96,000 instructions.
                No preemption was tried inside of malloc (sealed).
                Nothing is claimed of what happens inside of mutex_lock (trusted).
                Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
                Not exhausted:
                  8 state spaces, not begun
                Data races: 0 without harm in the spaces exhausted, 2 untested.
            "#]],
        );
    }
}

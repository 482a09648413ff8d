//! Infinite loops, judged by what completed executions of the same test needed.
//!
//! Two kinds (Blum 2012, 5.3.2 (5); Blum 2018, 3.4.6): too many instructions without a preemption point, and
//! too many points. Unlike there, a step that came to its end is no endless loop, however long it took, and the
//! longest of those that did is taken into account. How much is too much is a [`Limits`] value worked out from a [`Progress`] before an
//! execution begins and fixed while it runs. So one execution is a function of its schedule and its limits; a
//! finding carries the limit that it broke, and [`Limits::of`] gives it back for the replay. All arithmetic
//! is on whole numbers: no host rounds differently.

use crate::facts::{Detector, Moment, What};
use crate::{Finding, FindingKind, Role, Side};
use serde::{Deserialize, Serialize};
use trace::StepEnd;

/// The constants from which limits are computed, with the papers' settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Constants {
    /// The limit on instructions of a transition is this many times their average.
    pub instructions_factor: u64,
    /// The average number of instructions counts as at least this: transitions between racing accesses may
    /// have one instruction.
    pub instructions_average_min: u64,
    /// The limit on points of an execution is this many times their average.
    pub points_factor: u64,
    /// With fewer completed executions than this the limits grow by a tenth for each one missing.
    pub confident_after: u32,
    /// The limit on points of the very first execution, when there is no average yet.
    pub first_points_max: u64,
    pub first_instructions_max: u64,
}

impl Constants {
    /// The constants for kernels, whose transitions vary more.
    #[must_use]
    pub const fn kernel() -> Self {
        // A kernel that turns interrupts off and on for every character it prints has hundreds of points in a
        // line.
        Self { instructions_factor: 4_000, first_points_max: 1 << 16, ..Self::user() }
    }

    /// The constants for thread libraries and their clients.
    #[must_use]
    pub const fn user() -> Self {
        Self {
            instructions_factor: 2_000,
            instructions_average_min: 1_000,
            points_factor: 20,
            confident_after: 10,
            first_points_max: 4_000,
            first_instructions_max: 1 << 27,
        }
    }

    /// These constants for point sets that contain single accesses, or all of them.
    #[must_use]
    pub const fn everywhere(self) -> Self {
        Self { first_points_max: 1 << 20, ..self }
    }
}

impl Default for Constants {
    fn default() -> Self {
        Self::kernel()
    }
}

/// The most instructions of a step where a finding is shown again that is no endless loop: far more than the first execution
/// may have.
const REPLAY_INSTRUCTIONS_MAX: u64 = 1 << 29;

/// What took long and came to its end may take this many times as long in another execution.
const LONGEST_FACTOR: u64 = 4;

/// What completed executions needed. Sums and maxima only, so that those of several workers can be added in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    pub executions: u64,
    pub steps: u64,
    pub points: u64,
    pub instructions: u64,
    /// The most instructions that a step had.
    #[serde(default)]
    pub longest: u64,
}

impl Progress {
    pub fn add(&mut self, other: Progress) {
        self.longest = self.longest.max(other.longest);
        self.executions += other.executions;
        self.steps += other.steps;
        self.points += other.points;
        self.instructions += other.instructions;
    }

    /// The limits for the next execution.
    #[must_use]
    pub fn limits(&self, constants: &Constants) -> Limits {
        if self.executions == 0 {
            return Limits {
                instructions_max: constants.first_instructions_max,
                points_max: constants.first_points_max,
            };
        }
        let missing = u64::from(constants.confident_after).saturating_sub(self.executions);
        let doubt = |limit: u128| {
            // 1.1 to the power of what is missing; more than thirty missing cannot make it more doubtful.
            let power = u32::try_from(missing.min(30)).expect("at most 30");
            let scaled = limit.saturating_mul(11u128.pow(power)) / 10u128.pow(power);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let instructions = (self.instructions / self.steps.max(1)).max(constants.instructions_average_min);
        let points = u128::from(self.points) * u128::from(constants.points_factor);
        Limits {
            instructions_max: doubt(u128::from(instructions) * u128::from(constants.instructions_factor))
                .max(self.longest.saturating_mul(LONGEST_FACTOR)),
            points_max: doubt((points / u128::from(self.executions)).max(1)),
        }
    }
}

/// The limits in force during one execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// The most instructions of one step; a subject should end a longer step by itself
    /// ([`StepEnd::NoProgress`]).
    pub instructions_max: u64,
    pub points_max: u64,
}

impl Limits {
    /// No limits, for an execution that is known to end.
    pub const NONE: Limits = Limits { instructions_max: u64::MAX, points_max: u64::MAX };

    /// The limits under which `finding` shows again.
    #[must_use]
    pub const fn of(finding: &Finding) -> Limits {
        match finding.kind {
            FindingKind::TightLoop { instructions_max, .. } => Limits { instructions_max, ..Limits::NONE },
            FindingKind::EndlessPoints { points_max, .. } => Limits { points_max, ..Limits::NONE },
            // Its step need not come to an end: who says what is wrong may loop for ever then.
            _ => Limits { instructions_max: REPLAY_INSTRUCTIONS_MAX, ..Limits::NONE },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NoProgress {
    limits: Limits,
    so_far: Progress,
}

impl NoProgress {
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, so_far: Progress { executions: 0, steps: 0, points: 0, instructions: 0, longest: 0 } }
    }

    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits between executions, on a state that may be a clone from the middle of an earlier
    /// one.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// What this execution needed, to be added to the needs of the others once it has completed.
    #[must_use]
    pub const fn completed(&self) -> Progress {
        Progress { executions: 1, ..self.so_far }
    }
}

impl Detector<Finding> for NoProgress {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        if let What::End = moment.what {
            self.ended(moment, findings);
        }
    }
}

impl NoProgress {
    fn ended(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let (step, thread) = (moment.step, moment.thread);
        self.so_far.steps += 1;
        self.so_far.instructions += step.instructions;
        self.so_far.longest = self.so_far.longest.max(step.instructions);
        let limit = self.limits.instructions_max;
        let kind = match step.end {
            // The subject gave up by itself, before the limit: the finding shows again under the same one.
            StepEnd::NoProgress { instructions } if step.instructions < limit && limit != u64::MAX => {
                FindingKind::TightLoop { instructions, instructions_max: limit }
            }
            StepEnd::NoProgress { instructions } => {
                FindingKind::TightLoop { instructions, instructions_max: limit.min(instructions) }
            }
            StepEnd::Point(_) => {
                self.so_far.points += 1;
                if self.so_far.points <= self.limits.points_max {
                    return;
                }
                FindingKind::EndlessPoints { points: self.so_far.points, points_max: self.limits.points_max }
            }
            _ => return,
        };
        let pc = step.point().map(|point| point.pc).or(step.stack.first().map(|frame| frame.pc));
        let pc = pc.unwrap_or_default();
        let stack = (!step.stack.is_empty()).then(|| step.stack.clone());
        let side = Side { role: Role::Loops, thread, pc, stack, locks: Vec::new() };
        findings.push(Finding::new(kind, thread, pc, vec![side]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::check_with;
    use crate::{Config, Detectors};
    use expect_test::expect;

    fn run(instructions_max: u64, points_max: u64, script: &str, expected: expect_test::Expect) {
        let config = Config { limits: Limits { instructions_max, points_max }, ..Config::default() };
        check_with(Detectors::new(&config), script, expected);
    }

    #[test]
    fn flags() {
        run(
            10,
            9,
            "t1: write x -> loop 11",
            expect![[r#"
                infinite loop: t1 ran 11 instructions without reaching a preemption point (limit 10)
                  = tight-loop
                  t1 loops at 0
            "#]],
        );
        run(
            100,
            9,
            "t1: write x -> loop 11",
            expect![[r#"
                infinite loop: t1 ran 11 instructions in which no tick could come
                  = tight-loop
                  t1 loops at 0
            "#]],
        );
        run(
            99,
            2,
            "t1: yield\n t2: yield\n t1: yield",
            expect![[r#"
                infinite loop: 3 preemption points passed and the test is not over (limit 2)
                  = endless-points at 0x00000000
                  t1 loops at 0
            "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        run(10, 2, "t1: run 8; yield\n t2: run 8; yield\n t1: run 8; end -> finished", expect![""]);
        // What came to its end is no endless loop, however long it took.
        run(10, 9, "t1: run 11", expect![""]);
    }

    #[test]
    fn limits_follow_the_completed_executions() {
        let constants = Constants::kernel();
        let limits = |executions, steps, instructions| {
            let progress = Progress { executions, steps, points: steps, instructions, longest: 0 };
            let Limits { instructions_max, points_max } = progress.limits(&constants);
            (instructions_max, points_max)
        };
        assert_eq!(limits(0, 0, 0), (1 << 27, 1 << 16));
        // One hundred points each, far from confident: 1.1 to the ninth power is 2.357….
        assert_eq!(limits(1, 100, 500_000), (47_158_953, 4_715));
        assert_eq!(limits(10, 1_000, 5_000_000), (20_000_000, 2_000));
        // The average is at least 1,000.
        assert_eq!(limits(20, 2_000, 2_000), (4_000_000, 2_000));
        // One long step among short ones may come again.
        let long = Progress {
            executions: 20,
            steps: 2_000,
            points: 2_000,
            instructions: 90_000_000,
            longest: 80_000_000,
        };
        assert_eq!(long.limits(&constants).instructions_max, 320_000_000);
        assert_eq!(Progress::default().limits(&constants.everywhere()).points_max, 1 << 20);
    }

    #[test]
    fn no_replay_goes_on_for_ever() {
        let kind = FindingKind::Console { pattern: "FAIL".into(), line: "FAIL".into() };
        let said = Finding::new(kind, trace::ThreadId(1), trace::VirtAddr(0), Vec::new());
        let limits = Limits::of(&said);
        assert!(limits.instructions_max > Progress::default().limits(&Constants::kernel()).instructions_max);
        assert!(limits.instructions_max < u64::MAX);
    }

    #[test]
    fn a_finding_shows_again_under_its_own_limits() {
        let steps = crate::script::steps("t1: yield\n t2: yield\n t1: yield");
        let found = |limits| {
            let mut findings = Vec::new();
            let mut detectors = Detectors::new(&Config { limits, ..Config::default() });
            steps.iter().for_each(|step| detectors.observe(step, &mut findings));
            findings
        };
        let first = found(Limits { instructions_max: 50, points_max: 2 });
        assert_eq!(first, found(Limits::of(&first[0])));
    }
}

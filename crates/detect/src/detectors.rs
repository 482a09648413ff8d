//! The set of detectors that watch one execution.

use crate::facts::{Detector, Facts};
use crate::{
    Check, Console, Deadlock, Fault, Finding, Leak, Limits, Lockdep, NoProgress, Panic, Progress, Race,
    RaceDetector, Reentry, Signature, UseAfterFree,
};
use std::sync::Arc;
use trace::Step;

/// Which detectors watch. Those whose findings are certain always do; those that judge can be left out.
#[derive(Clone, Debug)]
pub struct Config {
    pub leak: bool,
    /// Every free of the guest's heap is seen; see [`UseAfterFree`].
    pub frees_seen: bool,
    /// Sizes of blocks that a test may leave: the kernel keeps them on purpose.
    pub kept: Vec<u64>,
    /// Whether broken rules about locks are reported even if nothing got stuck; see [`Lockdep`].
    pub lockdep: bool,
    /// Whether two threads in the allocator at once are looked for: in programs, whose allocators have no other way to keep others
    /// out than locks; see [`Reentry`].
    pub reentry: bool,
    /// Lines of the console that mean trouble; see [`Console`].
    pub console: Vec<String>,
    pub limits: Limits,
    /// Instructions of a transition that are never too many, whatever other executions need.
    pub instructions_allowed: u64,
    /// Findings that are known already and set aside, by signature or by cause.
    pub known: Vec<Signature>,
}

impl Default for Config {
    fn default() -> Self {
        let limits = Progress::default().limits(&crate::Constants::default());
        Self {
            leak: true,
            frees_seen: true,
            kept: Vec::new(),
            lockdep: false,
            reentry: true,
            console: Vec::new(),
            limits,
            instructions_allowed: 0,
            known: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Detectors {
    facts: Facts,
    panic: Panic,
    fault: Fault,
    check: Check,
    console: Console,
    use_after_free: UseAfterFree,
    reentry: Option<Reentry>,
    deadlock: Deadlock,
    no_progress: NoProgress,
    instructions_allowed: u64,
    leak: Option<Leak>,
    lockdep: Option<Lockdep>,
    known: Arc<[Signature]>,
}

const DETECTORS: usize = 10;

impl Detectors {
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            facts: Facts::default(),
            panic: Panic,
            fault: Fault,
            check: Check,
            console: Console::new(config.console.iter().map(String::as_str)),
            use_after_free: UseAfterFree { frees_seen: config.frees_seen },
            reentry: config.reentry.then(Reentry::default),
            deadlock: Deadlock::default(),
            no_progress: NoProgress::new(config.limits),
            instructions_allowed: config.instructions_allowed,
            leak: config.leak.then(|| Leak::new(&config.kept)),
            lockdep: config.lockdep.then(Lockdep::default),
            known: config.known.clone().into(),
        }
    }

    /// Adds what is wrong with `step`, the finding that tells most first: a use after free may be followed by
    /// the panic that it causes in the same step.
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.observe_with(None, step, findings, &mut Vec::new());
    }

    /// Like [`Self::observe`], together with a detector of races, which has watched from the beginning of the
    /// execution or begins now.
    pub fn observe_with(
        &mut self,
        mut race_detector: Option<&mut RaceDetector>,
        step: &Step,
        findings: &mut Vec<Finding>,
        races: &mut Vec<Race>,
    ) {
        let mut all: [Option<&mut dyn Detector<Finding>>; DETECTORS] = [
            Some(&mut self.use_after_free),
            self.reentry.as_mut().map(|reentry| reentry as &mut dyn Detector<Finding>),
            Some(&mut self.panic),
            Some(&mut self.fault),
            Some(&mut self.deadlock),
            Some(&mut self.check),
            Some(&mut self.console),
            self.lockdep.as_mut().map(|detector| detector as _),
            self.leak.as_mut().map(|detector| detector as _),
            Some(&mut self.no_progress),
        ];
        let mut found = [const { Vec::new() }; DETECTORS];
        self.facts.walk(step, |moment| {
            for (detector, found) in all.iter_mut().zip(&mut found) {
                if let Some(detector) = detector {
                    detector.observe(moment, found);
                }
            }
            if let Some(detector) = &mut race_detector {
                detector.observe(moment, races);
            }
        });
        let is_news = |finding: &Finding| {
            !self.known.contains(&finding.signature()) && !self.known.contains(&finding.cause())
        };
        let found = found.into_iter().flatten();
        match self.known.is_empty() {
            true => findings.extend(found),
            false => findings.extend(found.filter(is_news)),
        }
    }

    /// From now on findings with this signature or this cause are not reported.
    pub fn set_aside(&mut self, known: Signature) {
        self.known = self.known.iter().cloned().chain([known]).collect();
    }

    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.no_progress.limits()
    }

    /// See [`NoProgress::set_limits`].
    pub fn set_limits(&mut self, limits: Limits) {
        let instructions_max = limits.instructions_max.max(self.instructions_allowed);
        self.no_progress.set_limits(Limits { instructions_max, ..limits });
    }

    /// What this execution needed, to be added to a [`Progress`] once it has completed.
    #[must_use]
    pub const fn completed(&self) -> Progress {
        self.no_progress.completed()
    }
}

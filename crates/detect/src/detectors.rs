//! The set of detectors that watch one execution.

use crate::facts::{Detector, Facts, Moment};
use crate::{
    Check, Console, Deadlock, Fault, Finding, Leak, Limits, Lockdep, NoProgress, Panic, Progress, Race,
    RaceDetector, Reentry, Signature, UseAfterFree,
};
use std::sync::Arc;
use trace::Step;

/// After how many moments of a step a detector of races asks whether anybody still waits for it.
const MOMENTS_UNASKED: u32 = 16;

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
    /// Whether two threads in the allocator at once are looked for: in programs, whose allocators have no
    /// other way to keep others out than locks; see [`Reentry`].
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

/// The detectors, each said once: its name, its type, and how it is made of a [`Config`] if it is to watch.
macro_rules! detectors {
    ($($name:ident: $detector:ty = $make:expr,)*) => {
        #[derive(Clone, Debug)]
        struct All {
            $($name: Option<$detector>,)*
        }

        impl All {
            fn new(config: &Config) -> Self {
                $(let $name: fn(&Config) -> Option<$detector> = $make;)*
                Self { $($name: $name(config),)* }
            }

            /// Each is called by its own name, so that what a detector does not look at costs it a comparison
            /// and no call: there are far more moments than there is to say.
            fn observe(&mut self, moment: &Moment<'_>, found: &mut Found) {
                $(if let Some(detector) = &mut self.$name {
                    detector.observe(moment, &mut found.$name);
                })*
            }
        }

        /// What each detector said of one step.
        #[derive(Default)]
        struct Found {
            $($name: Vec<Finding>,)*
        }

        impl Found {
            /// All that was said, by the order of the detectors.
            fn into_iter(self) -> impl Iterator<Item = Finding> {
                [$(self.$name,)*].into_iter().flatten()
            }
        }
    };
}

// The finding that tells most comes first: a use after free may be followed by the panic that it causes in
// the same step.
detectors! {
    use_after_free: UseAfterFree = |config| Some(UseAfterFree { frees_seen: config.frees_seen }),
    reentry: Reentry = |config| config.reentry.then(Reentry::default),
    panic: Panic = |_| Some(Panic),
    fault: Fault = |_| Some(Fault),
    deadlock: Deadlock = |_| Some(Deadlock::default()),
    check: Check = |_| Some(Check),
    console: Console = |config| Some(Console::new(config.console.iter().map(String::as_str))),
    lockdep: Lockdep = |config| config.lockdep.then(Lockdep::default),
    leak: Leak = |config| config.leak.then(|| Leak::new(&config.kept)),
}

#[derive(Clone, Debug)]
pub struct Detectors {
    facts: Facts,
    all: All,
    no_progress: NoProgress,
    instructions_allowed: u64,
    known: Arc<[Signature]>,
}

impl Detectors {
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            facts: Facts::default(),
            all: All::new(config),
            no_progress: NoProgress::new(config.limits),
            instructions_allowed: config.instructions_allowed,
            known: config.known.clone().into(),
        }
    }

    /// Adds what is wrong with `step`, the finding that tells most first.
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.observe_with(None, step, findings, &mut Vec::new(), &|| false);
    }

    /// Like [`Self::observe`], together with a detector of races, which has watched from the beginning of the
    /// execution or begins now. A long step may take it long; `unwanted` is asked now and then whether to
    /// leave off. `false`: it did, and neither what was reported nor what the detectors have become is of any
    /// use.
    pub fn observe_with(
        &mut self,
        mut race_detector: Option<&mut RaceDetector>,
        step: &Step,
        findings: &mut Vec<Finding>,
        races: &mut Vec<Race>,
        unwanted: &dyn Fn() -> bool,
    ) -> bool {
        let (mut moments, mut is_unwanted) = (0u32, false);
        let all = &mut self.all;
        let mut found = Found::default();
        let mut without_progress = Vec::new();
        self.facts.walk(step, |moment| {
            all.observe(moment, &mut found);
            self.no_progress.observe(moment, &mut without_progress);
            if let Some(detector) = &mut race_detector
                && !is_unwanted
            {
                detector.observe(moment, races);
                moments += 1;
                is_unwanted = moments.is_multiple_of(MOMENTS_UNASKED) && unwanted();
            }
        });
        let is_news = |finding: &Finding| {
            !self.known.contains(&finding.signature()) && !self.known.contains(&finding.cause())
        };
        let found = found.into_iter().chain(without_progress);
        match self.known.is_empty() {
            true => findings.extend(found),
            false => findings.extend(found.filter(is_news)),
        }
        !is_unwanted
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

//! The world of one execution: the subject and those who watch it. A checkpoint is a clone of it, and going
//! back is assignment.

use detect::{Detectors, Finding, Limits, Progress};
use trace::{Step, Subject};

/// What an observer has to say about one step.
#[derive(Clone, Debug)]
pub struct Observed<N> {
    /// Bugs; any of them ends the execution.
    pub findings: Vec<Finding>,
    /// What is worth remembering beyond this execution without being a bug, such as a data race.
    pub notes: Vec<N>,
}

impl<N> Default for Observed<N> {
    fn default() -> Self {
        Self { findings: Vec::new(), notes: Vec::new() }
    }
}

/// Watches the steps of an execution. A value: cloning it is cheap, and what it says depends on the steps
/// alone. Under partial-order reduction only one order of independent steps is shown to it.
pub trait Observer: Clone + Send {
    type Note: Clone + Ord + Send;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Self::Note>);

    /// Whether it left off in the middle of the last step, because the work is no longer wanted. Then the
    /// execution counts no more than one whose subject was cancelled.
    fn is_cut_short(&self) -> bool {
        false
    }

    /// Limits for telling an endless loop, in force from now on.
    fn set_limits(&mut self, _limits: Limits) {}

    /// About how many bytes of memory this observer needs for itself while `other` is kept too.
    fn bytes_apart(&self, other: &Self) -> usize {
        let _ = other;
        size_of::<Self>()
    }

    /// What the completed execution needed, for the limits of later ones.
    fn completed(&self) -> Progress {
        Progress::default()
    }
}

impl Observer for () {
    type Note = ();

    fn observe(&mut self, _step: &Step, _seen: &mut Observed<()>) {}
}

impl Observer for Detectors {
    type Note = ();

    fn observe(&mut self, step: &Step, seen: &mut Observed<()>) {
        Detectors::observe(self, step, &mut seen.findings);
    }

    fn set_limits(&mut self, limits: Limits) {
        Detectors::set_limits(self, limits);
    }

    fn completed(&self) -> Progress {
        Detectors::completed(self)
    }
}

pub struct World<S, O> {
    pub subject: S,
    pub observer: O,
}

impl<S: Subject, O: Observer> World<S, O> {
    pub const fn new(subject: S, observer: O) -> Self {
        Self { subject, observer }
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.subject.limit_step(limits.instructions_max);
        self.observer.set_limits(limits);
    }

    /// About how many bytes of memory this world needs for itself while `other` is kept too.
    #[must_use]
    pub fn bytes_apart(&self, other: &Self) -> usize {
        self.subject.bytes_apart(&other.subject) + self.observer.bytes_apart(&other.observer)
    }
}

impl<S: Subject, O: Observer> Clone for World<S, O> {
    fn clone(&self) -> Self {
        Self { subject: self.subject.clone(), observer: self.observer.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.subject.clone_from(&source.subject);
        self.observer.clone_from(&source.observer);
    }
}

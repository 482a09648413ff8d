//! Where runs of the machine stop, by what they wait for.

use super::Until;
use crate::driving::compiled::Compiled;
use crate::driving::step_builder::StepBuilder;
use crate::hooks::kernel::Kernel;
use crate::hooks::tracker::Tracker;
use machine::{Kinds, StopSet, Watchpoint};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::PointSet;

/// The sets of stops, built from the addresses of the tracker, of the points and of what is to be seen; built
/// again when they change.
#[derive(Clone, Default)]
pub(super) struct Stops {
    /// The points that are asked for.
    pub points: Arc<Compiled>,
    running: StopSet,
    /// Ends runs until interrupts are on.
    settling: StopSet,
    /// Ends runs until a variable that forbids preemption changes. Apart from `settling`, because watching
    /// memory costs time.
    watching: StopSet,
    /// Ends runs until the kernel returns to a program.
    returning: StopSet,
    /// Which addresses of the tracker the sets know. `None`: they are to be built.
    built: Option<(usize, usize)>,
}

impl Stops {
    /// Asks for these points, if they are other ones.
    pub fn ask_for(&mut self, points: &PointSet, kernel: &Kernel) {
        if self.points.set != *points {
            self.points = Arc::new(Compiled::new(points, kernel));
            self.invalidate();
        }
    }

    /// Takes note that other accesses are to be seen.
    pub fn invalidate(&mut self) {
        self.built = None;
    }

    /// Builds them anew if the addresses to stop at have changed; the tracker's only ever grow.
    /// With `buffers`, also where the program needs its store buffer to be empty.
    pub fn build(&mut self, tracker: &Tracker, builder: &StepBuilder, buffers: bool) {
        if self.built == Some(tracker.stops.version()) {
            return;
        }
        let (kernel, points) = (&tracker.kernel, Arc::clone(&self.points));
        // A stack is there to be read only where the machine stops, and what is noted has its place among the
        // changes of the flag.
        let mut noted = FxHashMap::default();
        if tracker.may_note() && builder.log.flags {
            noted.clone_from(tracker.stops.noted());
            points.addresses.iter().chain(builder.sighted()).for_each(|addr| _ = noted.remove(addr));
        }
        let known = tracker.stops.union(&points.addresses).chain(builder.sighted());
        let code = Arc::new(known.filter(|addr| !noted.contains_key(addr)).copied().collect());
        let noted = Arc::new(noted);
        // Where nobody is preempted, the flag matters to rules about locks, which may learn it from the log,
        // and to whoever judges accesses.
        let flag_matters = points.interrupts || tracker.flag_matters() && !builder.log.flags;
        let always = Kinds::HALT.and(Kinds::TRANSACTION).and(Kinds::TRANSACTION_END);
        let buffered = Kinds::USER_FENCE.and(Kinds::EXCEPTION).and(Kinds::INTERRUPT_RETURN);
        let always = if buffers { always.and(buffered) } else { always };
        let always = if kernel.annotations { always.and(Kinds::HYPERCALL) } else { always };
        // Everywhere alike: how many instructions a repeated one counts for depends on it.
        let iterations = Arc::new(points.iterations.clone());
        let with = |on| {
            let (code, iterations) = (Arc::clone(&code), Arc::clone(&iterations));
            StopSet { code, noted: Arc::clone(&noted), iterations, on, ..StopSet::default() }
        };
        let flag = always.and(Kinds::INTERRUPT_FLAG);
        *self = Self {
            points,
            running: with(if flag_matters { flag } else { always }),
            settling: with(flag),
            watching: StopSet { watch: Arc::new(preemption_variables(kernel)), ..with(flag) },
            returning: with(always.and(Kinds::INTERRUPT_RETURN)),
            built: Some(tracker.stops.version()),
        };
    }

    pub fn until(&mut self, until: Until) -> &mut StopSet {
        match until {
            Until::Point => &mut self.running,
            Until::InterruptsOn => &mut self.settling,
            Until::PreemptionAllowed => &mut self.watching,
            Until::Program => &mut self.returning,
        }
    }

    /// Whether a change of memory can allow preemption.
    pub fn watch_preemption(&self) -> bool {
        !self.watching.watch.is_empty()
    }
}

/// Variables whose change can allow preemption.
fn preemption_variables(kernel: &Kernel) -> Vec<Watchpoint> {
    let Some(allowed) = &kernel.preemption_allowed else { return Vec::new() };
    let variables = allowed.variables();
    variables.iter().map(|&(start, bytes)| Watchpoint { start, bytes, reads: false, writes: true }).collect()
}

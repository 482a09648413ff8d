//! What each thread has accessed since the test began, for whoever asks whether a transaction can have met
//! it.
//!
//! Contract: exact to the byte. What is remembered, and so what it answers, is the same for executions that
//! differ only in the order of independent steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, Action, Step, ThreadId, Touched};

/// What a thread accessed without a break.
struct Stretch {
    thread: ThreadId,
    /// How many threads it had made by then.
    made: usize,
    touched: Touched,
}

#[derive(Clone, Default)]
pub(super) struct Accessed {
    stretches: Vec<Arc<Stretch>>,
    /// How many threads each has made.
    made: BTreeMap<ThreadId, usize>,
    /// For each thread, how many threads others had made when it was made itself: what they did up to there
    /// came before it.
    before: BTreeMap<ThreadId, BTreeMap<ThreadId, usize>>,
}

impl Accessed {
    pub fn take_in(&mut self, step: &Step) {
        let (mut thread, mut done) = (step.thread, 0);
        for event in &step.events {
            let until = event.accesses_before.clamp(done, step.accesses.len());
            match event.action {
                Action::Switch { to } => {
                    self.add(thread, &step.accesses[done..until]);
                    (thread, done) = (to, until);
                }
                Action::Create { child } => {
                    self.add(thread, &step.accesses[done..until]);
                    done = until;
                    self.created(thread, child);
                }
                _ => {}
            }
        }
        self.add(thread, &step.accesses[done..]);
    }

    fn add(&mut self, thread: ThreadId, accesses: &[Access]) {
        if !accesses.is_empty() {
            let made = self.made.get(&thread).copied().unwrap_or(0);
            self.stretches.push(Arc::new(Stretch { thread, made, touched: Touched::by(accesses) }));
        }
    }

    fn created(&mut self, by: ThreadId, child: ThreadId) {
        // A number may be given again: the new thread has done nothing.
        self.stretches.retain(|stretch| stretch.thread != child);
        let made = self.made.entry(by).or_default();
        *made += 1;
        let made = *made;
        let mut before = self.before.get(&by).cloned().unwrap_or_default();
        before.insert(by, made);
        self.before.insert(child, before);
    }

    /// The accesses that conflict with what other threads did, each once.
    pub fn conflicts(&self, thread: ThreadId, accesses: &[Access]) -> Vec<Access> {
        let before = self.before.get(&thread);
        let beside = |stretch: &&Arc<Stretch>| {
            let before = before.and_then(|before| before.get(&stretch.thread)).copied().unwrap_or(0);
            stretch.thread != thread && stretch.made >= before
        };
        let all = Touched::by(accesses);
        let meets = |stretch: &&Arc<Stretch>| all.conflicts(&stretch.touched);
        let met: Vec<_> = self.stretches.iter().filter(beside).filter(meets).collect();
        let conflicts = |access: &&Access| met.iter().any(|stretch| stretch.touched.conflicts_with(access));
        let mut found: Vec<Access> = accesses.iter().filter(conflicts).copied().collect();
        found.sort_unstable_by_key(|access| (access.phys, access.size, access.kind));
        found.dedup_by_key(|access| (access.phys, access.size, access.kind));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{AccessKind, Event, PhysAddr, StepEnd, VirtAddr};

    fn access(at: u64, kind: AccessKind) -> Access {
        Access { phys: PhysAddr(at), addr: VirtAddr(at), size: 4, kind, atomic: false, pc: VirtAddr(0) }
    }

    fn step(thread: u32, accesses: &[Access], created: Option<u32>) -> Step {
        let create = created.map(|child| Event {
            action: Action::Create { child: ThreadId(child) },
            pc: VirtAddr(0),
            accesses_before: accesses.len(),
            stack: None,
        });
        Step {
            choice: ThreadId(thread).into(),
            thread: ThreadId(thread),
            accesses: accesses.to_vec(),
            events: create.into_iter().collect(),
            instructions: 0,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn only_what_others_did_beside_it_conflicts() {
        let (read, write) = (AccessKind::Read, AccessKind::Write);
        let mut accessed = Accessed::default();
        accessed.take_in(&step(1, &[access(0, write)], Some(2)));
        accessed.take_in(&step(1, &[access(16, write), access(32, read)], None));
        let body = |at, kind| vec![access(at, kind)];
        let found = |thread, at, kind| accessed.conflicts(ThreadId(thread), &body(at, kind)).len();
        assert_eq!(found(2, 0, write), 0, "before it was made");
        assert_eq!(found(3, 0, read), 1, "another's");
        assert_eq!(found(2, 16, read), 1);
        assert_eq!(found(2, 20, read), 0, "a neighbour");
        assert_eq!(found(2, 34, write), 1, "overlapping");
        assert_eq!(found(2, 32, read), 0, "two reads");
        assert_eq!(found(1, 16, write), 0, "its own");
    }
}

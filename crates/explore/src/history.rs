//! Happens-before among the steps of one execution, and its races: pairs of steps whose order matters and
//! could have been the other way round.
//!
//! Source: Flanagan and Godefroid (2005) as retold in Blum 2018, 3.4.2, with vector clocks instead of
//! pairwise scans, and the initials of Abdulla et al. (2014) in place of "any thread". One clock per step
//! holds, for each thread, how many steps of the execution up to its last one that happens before. Edges:
//! program order; who made a thread able to run, to that thread's next step; the last step of a thread, to
//! the step in which another has joined it ([`Action::Join`], where that is trusted: Blum 2018, 3.2.1); and
//! conflicts of footprints.
//!
//! Steps hold many accesses, so what a step touches may itself depend on its past, and Figure 5.4 of Blum
//! 2012 defeats an algorithm that looks at the last conflict only. Going back from step `j`, each earlier `i`
//! that does not yet happen before `j` by way of a later one, and conflicts with it, is a race: all of them
//! count. To reverse it one must begin, where `i` was chosen, with a first step of what `j` needs: the
//! *initials*, threads whose first step after `i` happens before `j` (or is `j`) and depends on nothing else
//! after `i`. Steps that merely lie in between do not qualify: with another past, `j` might depend on them.
//!
//! *Groups.* Steps of one thread between which nobody else could be chosen (interrupts off) are one event: a
//! race with any of them is decided where the first was chosen, and others becoming disabled and enabled in
//! between is no dependence.
//!
//! *Several possible wakers.* A thread that waits in a loop (its step ended at [`PointKind::Blocked`]) is
//! woken by any conflict, perhaps by either of two steps that are independent of each other. Only the first
//! of them enables it, so the order "second waker, thread, first waker" is reachable though the first waker
//! happens before the thread's next step. So two such wakers race. Threads that wait otherwise are woken on
//! purpose, and then wakers conflict anyway.
//!
//! *Outcomes.* Several choices of one actor are outcomes of one step. They never commute with each other.
//! Initials are actors: whoever tries one tries all its outcomes. A step that changes which outcomes another
//! actor has depends on it.
//!
//! *Interrupts.* An interrupt is an actor of its own. It shares a processor with others: with [`Actor::Cpu`]
//! and with other interrupts there. Two steps of different actors on one processor are dependent if
//! - they touch the same memory, one of them writing; or
//! - one of them changes whether or with what outcome the other's actor can be chosen; or
//! - one of them leaves its processor in a *section*: with interrupts off, or within a handler. Nothing else
//!   of that processor can run before the section ends, so that a race with any step of a section is decided
//!   where the section was entered, and that it ends is no reason why what comes after it could not have come
//!   before it; or
//! - one of them leaves the processor waiting for an interrupt, and the other is of an interrupt. Any
//!   interrupt ends the wait, so several interrupts are several possible wakers, as above; or
//! - one of them stores into the store buffer of the processor, or is an interrupt that went over to what it
//!   had interrupted ([`Action::Switch`]).
//!
//! So a handler that ends within its step, and touches nothing that its processor's code does, is tried in
//! one place. What a section that never ends would have kept from running is not known; then everything is
//! tried where it was entered ([`History::unfinished`]).
//!
//! *Store buffers.* A step of [`Actor::Buffer`] or [`Actor::ThreadBuffer`] drains the oldest store, or
//! several that were made in one step. It happens after the step that made them, and is otherwise a write to
//! memory like any other, also to the processor itself: a load counts as a read of memory even where the
//! buffer answers it. An instruction that waits until the buffer is empty, or empties it ([`Action::Fence`]),
//! depends on every drain. A store into a buffer that its processor waits for, made by a handler, makes that
//! wait longer; everything is tried where the interrupt was taken.
//!
//! Contract: a thread becomes disabled by its own step, or by one that ends a group; anything else is
//! reported in [`Closing::changed`] so that the strategy can be careful.

use crate::execution::Taken;
use crate::footprint::{Footprint, LockOrder};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, Actor, ActorSet, ChoiceSet, PointKind, Touching};

/// How many threads a clock has room for without a list.
const CLOCK_FEW: usize = 6;

/// A vector clock: for each thread, by its small number, one more than the index of its last step that
/// happens before. Every step has one, and most executions have few threads.
#[derive(Clone, Debug, Default)]
struct Clock {
    few: [u32; CLOCK_FEW],
    more: Vec<u32>,
}

impl Clock {
    fn all(&self) -> impl Iterator<Item = u32> {
        self.few.iter().chain(&self.more).copied()
    }

    fn get(&self, thread: usize) -> usize {
        let upto = match thread.checked_sub(CLOCK_FEW) {
            None => self.few[thread],
            Some(at) => self.more.get(at).copied().unwrap_or(0),
        };
        upto as usize
    }

    fn raise(&mut self, thread: usize, upto: usize) {
        let mine = match thread.checked_sub(CLOCK_FEW) {
            None => &mut self.few[thread],
            Some(at) => {
                self.more.resize(self.more.len().max(at + 1), 0);
                &mut self.more[at]
            }
        };
        *mine = (*mine).max(u32::try_from(upto).expect("fewer than 2^32 steps"));
    }

    fn join(&mut self, other: &Clock) {
        if self.more.len() < other.more.len() {
            self.more.resize(other.more.len(), 0);
        }
        let mine = self.few.iter_mut().chain(&mut self.more);
        mine.zip(other.all()).for_each(|(mine, theirs)| *mine = (*mine).max(theirs));
    }

    /// Whether no step of another thread from step `from` on happens before.
    fn nothing_since(&self, from: usize, own: usize) -> bool {
        self.all().enumerate().all(|(thread, upto)| thread == own || upto as usize <= from)
    }
}

#[derive(Clone, Debug)]
struct StepRecord {
    thread: usize,
    /// The first step of the group.
    head: usize,
    /// The step at which the section was entered that this step is in; else the same as `head`. A section is
    /// the handler of an interrupt, or a stretch of a processor with interrupts off.
    section: usize,
    /// Whether the section goes on after this step.
    open: bool,
    footprint: Arc<Footprint>,
    clock: Clock,
}

/// Two steps whose order could be reversed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReversibleRace {
    /// The decision at which the first of the two was chosen.
    pub at: usize,
    /// The second of the two.
    pub later: usize,
    /// The actors one of which must be tried at `at`, where all of them were enabled. Empty if nothing needs
    /// to be tried.
    pub initials: ActorSet,
    /// The actor to try if it is one of `initials`.
    pub prefer: Actor,
    /// Whether the second step needs no other step after `at`, so that its own thread can be tried at once.
    pub alone: bool,
}

/// What a step that ended its group changed for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closing {
    pub at: usize,
    /// The last step of the group.
    pub by: usize,
    /// The actors that could be chosen before the group and cannot after it, or only with other outcomes.
    pub changed: ActorSet,
    /// The actors that are to be tried in place of the group.
    pub marks: ActorSet,
}

/// A thread that waited in a loop and was woken.
#[derive(Clone, Debug)]
struct Woken {
    thread: usize,
    by: usize,
    /// What the thread touched in the steps that led to its waiting.
    waiting: Arc<Footprint>,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    actors: Vec<Actor>,
    events: Vec<StepRecord>,
    /// For each thread, its steps.
    steps_of: Vec<Vec<usize>>,
    /// For each thread, the steps that made it able to run.
    enablers_of: Vec<Vec<usize>>,
    /// For each store buffer, the steps that stored into it, once for each store.
    stores_of: BTreeMap<Actor, Vec<usize>>,
    /// For each store buffer, the steps that drained it, once for each store.
    drains_of: BTreeMap<Actor, Vec<usize>>,
    woken: Vec<Woken>,
    /// Whether nobody asks for the initials of races.
    without_initials: bool,
    pub(crate) locks: LockOrder,
    /// Room for footprints in the making.
    touching: Touching,
    /// Room for how many steps of each thread have been looked at.
    ends: Vec<usize>,
}

impl History {
    /// A history whose races have no initials, for whoever does not go by them.
    #[must_use]
    pub fn without_initials() -> Self {
        Self { without_initials: true, ..Self::default() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn truncate(&mut self, len: usize) {
        self.events.truncate(len);
        for steps in &mut self.steps_of {
            while steps.last().is_some_and(|&step| step >= len) {
                steps.pop();
            }
        }
        for stores in self.stores_of.values_mut().chain(self.drains_of.values_mut()) {
            stores.truncate(stores.partition_point(|&step| step < len));
        }
        // An edge from the last step that is kept depends on who was enabled after it, known from the next
        // decision, which stays the same.
        for enablers in &mut self.enablers_of {
            while enablers.last().is_some_and(|&step| step >= len) {
                enablers.pop();
            }
        }
        while self.woken.last().is_some_and(|woken| woken.by >= len) {
            self.woken.pop();
        }
    }

    #[must_use]
    pub fn footprint(&self, at: usize) -> &Arc<Footprint> {
        &self.events[at].footprint
    }

    /// Notes that the last step ended the execution.
    pub fn end(&mut self) {
        if let Some(event) = self.events.last_mut() {
            event.footprint = Arc::new(event.footprint.ending());
        }
    }

    /// The decision at which the group of step `at` was chosen.
    #[must_use]
    pub fn head(&self, at: usize) -> usize {
        self.events[at].head
    }

    /// The footprint of the whole group that was chosen at `head`.
    #[must_use]
    pub fn group_footprint(&self, head: usize) -> Arc<Footprint> {
        let tail = self.tail(head);
        if tail == head {
            return self.events[head].footprint.clone();
        }
        Arc::new(Footprint::union(self.events[head..=tail].iter().map(|event| event.footprint.as_ref())))
    }

    /// Whether step `a` happens before step `b`.
    #[must_use]
    pub fn happens_before(&self, a: usize, b: usize) -> bool {
        self.events[b].clock.get(self.events[a].thread) > a
    }

    fn tail(&self, at: usize) -> usize {
        let head = self.events[at].head;
        let mut tail = at;
        while self.events.get(tail + 1).is_some_and(|next| next.head == head) {
            tail += 1;
        }
        tail
    }

    fn number(&mut self, actor: Actor) -> usize {
        if let Some(at) = self.actors.iter().position(|&known| known == actor) {
            return at;
        }
        self.actors.push(actor);
        self.steps_of.push(Vec::new());
        self.enablers_of.push(Vec::new());
        self.actors.len() - 1
    }

    /// Takes note of the next step of `path`, and adds its races, nearest first.
    pub fn push(&mut self, path: &[Taken], races: &mut Vec<ReversibleRace>) -> Option<Closing> {
        let at = self.events.len();
        let taken = &path[at];
        let closing = self.close(path, &taken.enabled, races);
        let head = match self.events.last() {
            Some(previous) if continues(path, at) => previous.head,
            _ => at,
        };
        let thread = self.number(taken.actor());
        let footprint = Arc::new(Footprint::made(&taken.step, self.locks, &mut self.touching));

        let last = self.steps_of[thread].last().copied();
        let mut clock = last.map(|step| self.events[step].clock.clone()).unwrap_or_default();
        let enabler =
            self.enablers_of[thread].last().copied().filter(|&step| last.is_none_or(|last| step > last));
        if let Some(step) = enabler {
            clock.join(&self.events[step].clock);
        }
        for step in self.drained(thread).into_iter().chain(self.joined(taken)) {
            clock.join(&self.events[step].clock);
        }
        self.note_stores(at, taken);
        self.steps_of[thread].push(at);
        let (section, open) = self.section(head, last, taken);
        let event =
            StepRecord { thread, head, section, open, footprint: footprint.clone(), clock: Clock::default() };
        self.events.push(event);

        // Back from here, passing over what happens before: of each thread all up to what the clock says.
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(self.steps_of.iter().map(Vec::len));
        ends[thread] -= 1;
        while let Some((earlier, by)) = self.latest_apart(&ends, &clock) {
            ends[by] -= 1;
            let event = &self.events[earlier];
            if !event.footprint.conflicts(&footprint) {
                continue;
            }
            races.push(match self.shares_cpu(event.thread, thread) && event.section < event.head {
                // Nothing else of this processor comes between the steps of a section.
                true => self.race_with_section(event.section, at),
                false => self.race(event.head, at, &clock, path),
            });
            clock.join(&self.events[self.tail(earlier)].clock);
        }
        self.ends = ends;
        for woken in &self.woken {
            let waker = &self.events[woken.by];
            let apart =
                woken.thread != thread && waker.thread != thread && clock.get(waker.thread) <= waker.head;
            if apart && woken.waiting.conflicts(&footprint) {
                races.push(self.race(waker.head, at, &clock, path));
            }
        }
        clock.raise(thread, at + 1);
        self.events[at].clock = clock;
        closing
    }

    /// The latest among the first `ends` steps of each thread that is not known to happen before, and its
    /// thread.
    fn latest_apart(&self, ends: &[usize], clock: &Clock) -> Option<(usize, usize)> {
        let last = |(thread, &end): (usize, &usize)| {
            let step = self.steps_of[thread][..end].last().copied()?;
            (clock.get(thread) <= step).then_some((step, thread))
        };
        ends.iter().enumerate().filter_map(last).max()
    }

    /// Where the section of `taken` was entered, which begins a group at `head`; its actor's step before it
    /// was `last`. Also says whether the section goes on after it.
    fn section(&self, head: usize, last: Option<usize>, taken: &Taken) -> (usize, bool) {
        let last = last.map(|step| &self.events[step]);
        let mut open = last.is_some_and(|last| last.open);
        let entered = last.filter(|_| open).map_or(head, |last| last.section);
        for event in &taken.step.events {
            match (taken.actor(), &event.action) {
                (Actor::Interrupt { .. }, Action::Interrupt { .. })
                | (Actor::Cpu(_), Action::InterruptsOff) => open = true,
                (Actor::Interrupt { .. }, Action::InterruptReturn)
                | (Actor::Cpu(_), Action::InterruptsOn) => open = false,
                _ => {}
            }
        }
        (entered, open)
    }

    /// Whether two actors run on the same processor, one of them because of an interrupt.
    fn shares_cpu(&self, a: usize, b: usize) -> bool {
        let runs_on = |actor: usize| match self.actors[actor] {
            Actor::Cpu(cpu) | Actor::Interrupt { cpu, .. } => Some(cpu),
            Actor::Thread(_) | Actor::Buffer(_) | Actor::ThreadBuffer(_) => None,
        };
        a != b && runs_on(a).is_some() && runs_on(a) == runs_on(b)
    }

    /// Whether the step is of an interrupt that was taken where its processor waited, perhaps for its store
    /// buffer to drain, and stored more into it.
    fn prolongs_wait(&self, actor: usize, path: &[Taken], step: usize) -> bool {
        let Actor::Interrupt { cpu, .. } = self.actors[actor] else { return false };
        let mut events = path[step].step.events.iter();
        events.any(|event| matches!(event.action, Action::Buffered { .. }))
            && !path[self.events[step].section].enabled.contains_actor(cpu.into())
    }

    /// The decisions at which sections were entered that have not come to their end. What would have run on
    /// those processors afterwards is not known, so everything is to be tried in their place.
    #[must_use]
    pub fn unfinished(&self) -> Vec<usize> {
        let last = self.steps_of.iter().filter_map(|steps| Some(&self.events[*steps.last()?]));
        last.filter(|event| event.open).map(|event| event.section).collect()
    }

    /// Whether an actor that can be chosen again after a handler on its processor has just waited for that
    /// handler to end. Then it does not need it: it could have gone on before the interrupt was taken.
    fn is_resumed(&self, actor: usize, by: usize, path: &[Taken]) -> bool {
        self.shares_cpu(actor, by) && !self.steps_of[actor].last().is_some_and(|&step| halts(&path[step]))
    }

    /// The step that stored what the next step of the actor will drain, if that is a store buffer.
    fn drained(&self, actor: usize) -> Option<usize> {
        let buffer = self.actors[actor];
        let drained = self.drains_of.get(&buffer).map_or(0, Vec::len);
        self.stores_of.get(&buffer)?.get(drained).copied()
    }

    /// The last steps of those whom the step has joined.
    fn joined(&self, taken: &Taken) -> Vec<usize> {
        let last = |event: &trace::Event| match event.action {
            Action::Join { thread } => {
                let at = self.actors.iter().position(|actor| *actor == Actor::Thread(thread))?;
                self.steps_of[at].last().copied()
            }
            _ => None,
        };
        taken.step.events.iter().filter_map(last).collect()
    }

    fn note_stores(&mut self, at: usize, taken: &Taken) {
        let actor = taken.actor();
        let buffer = actor.buffer().unwrap_or(actor);
        for event in &taken.step.events {
            let of = match event.action {
                Action::Buffered { .. } => &mut self.stores_of,
                Action::Drained { .. } => &mut self.drains_of,
                _ => continue,
            };
            of.entry(buffer).or_default().push(at);
        }
    }

    /// The race between the group chosen at `head` and step `later`, whose clock so far covers all that
    /// happens before it after `head`.
    fn race(&self, head: usize, later: usize, clock: &Clock, path: &[Taken]) -> ReversibleRace {
        let own = self.events[later].thread;
        let (mut initials, prefer) = (ActorSet::new(), self.actors[own]);
        let mut alone = false;
        if self.without_initials {
            return ReversibleRace { at: head, later, initials, prefer, alone };
        }
        for (thread, steps) in self.steps_of.iter().enumerate() {
            if thread == self.events[head].thread {
                continue;
            }
            let Some(&first) = steps.get(steps.partition_point(|&step| step <= head)) else { continue };
            let tail = self.tail(first);
            let minimal = if tail == later {
                clock.nothing_since(head, thread)
            } else {
                clock.get(thread) > first && self.events[tail].clock.nothing_since(head, thread)
            };
            if minimal && path[head].enabled.contains_actor(self.actors[thread]) {
                initials.insert(self.actors[thread]);
                alone |= thread == own && tail == later;
            }
        }
        ReversibleRace { at: head, later, initials, prefer, alone }
    }

    /// The race between the section entered at `section` and step `later`. What has to be tried first to have
    /// `later` before all of the section is not worked out: no initials.
    fn race_with_section(&self, section: usize, later: usize) -> ReversibleRace {
        let prefer = self.actors[self.events[later].thread];
        ReversibleRace { at: section, later, initials: ActorSet::new(), prefer, alone: false }
    }

    /// Races that step `asleep` would have had at `head` with what came later, had it been chosen there.
    pub fn races_of_sleeper(
        &self,
        head: usize,
        actor: Actor,
        asleep: &Footprint,
        later: usize,
        path: &[Taken],
    ) -> Option<ReversibleRace> {
        let event = &self.events[later];
        let chosen = self.events[head].thread;
        let sleeper = self.actors.iter().position(|&known| known == actor);
        // Steps of the sleeper itself are in its own clock.
        let apart = event.thread != chosen
            && event.clock.get(chosen) <= head
            && sleeper.is_none_or(|sleeper| event.clock.get(sleeper) <= head)
            && event.footprint.conflicts(asleep);
        apart.then(|| {
            let mut clock = event.clock.clone();
            clock.raise(event.thread, later + 1);
            self.race(head, later, &clock, path)
        })
    }

    /// What an actor touched in the steps by which it came to wait in a loop or for an interrupt, if it does:
    /// all of them since it was last made able to run.
    fn waiting_in_loop(&self, thread: usize, path: &[Taken]) -> Option<Arc<Footprint>> {
        let steps = &self.steps_of[thread];
        let last = *steps.last()?;
        if halts(&path[last]) {
            return Some(self.events[last].footprint.clone());
        }
        let point = path[last].step.point()?;
        if point.kind != PointKind::Blocked {
            return None;
        }
        let since = self.enablers_of[thread].last().copied().unwrap_or(0);
        let recent = steps.iter().rev().take_while(|&&step| step >= since);
        Some(Arc::new(Footprint::union(recent.map(|&step| self.events[step].footprint.as_ref()))))
    }

    /// Takes note of what can be chosen after the last step. If that is somebody else than its actor, its
    /// group is over: actors that can run now and could not before it, or the other way round, depend on it.
    /// If it disabled an actor, or changed an actor's outcomes, both the last and the next step of that actor
    /// depend on it; races with the last step are added.
    pub fn close(
        &mut self,
        path: &[Taken],
        after: &ChoiceSet,
        races: &mut Vec<ReversibleRace>,
    ) -> Option<Closing> {
        let last = self.events.len().checked_sub(1)?;
        let StepRecord { head, thread, .. } = self.events[last];
        let chosen = self.actors[thread];
        if after.only_actor() == Some(chosen) {
            return None;
        }
        let before = &path[head].enabled;
        for actor in after.actors().filter(|&actor| !before.contains_actor(actor)) {
            let number = self.number(actor);
            if self.enablers_of[number].last() == Some(&last) || self.is_resumed(number, thread, path) {
                continue;
            }
            if let Some(waiting) = self.waiting_in_loop(number, path) {
                self.woken.push(Woken { thread: number, by: last, waiting });
            }
            self.enablers_of[number].push(last);
        }
        let changed: ActorSet = before
            .actors()
            .filter(|&actor| actor != chosen && !before.of(actor).eq(after.of(actor)))
            .collect();
        // Whoever will be able to run on this processor only later could have done so before the interrupt.
        if self.prolongs_wait(thread, path, last) {
            let at = self.events[last].section;
            let everybody = path[at].enabled.actors().collect();
            return Some(Closing { at, by: last, changed: ActorSet::new(), marks: everybody });
        }
        if changed.is_empty() {
            return None;
        }
        let footprint = &mut self.events[last].footprint;
        *footprint = Arc::new(footprint.with_actors(&changed));
        for actor in changed.iter() {
            let number = self.number(actor);
            let earlier = self.steps_of[number].last().copied();
            let Some(earlier) = earlier.filter(|&step| self.events[last].clock.get(number) <= step) else {
                continue;
            };
            races.push(self.race(self.events[earlier].head, last, &self.events[last].clock, path));
            let clock = self.events[self.tail(earlier)].clock.clone();
            self.events[last].clock.join(&clock);
        }
        Some(Closing { at: head, by: last, marks: changed.clone(), changed })
    }
}

/// Whether the processor waited for an interrupt after the step.
fn halts(taken: &Taken) -> bool {
    taken.step.events.iter().any(|event| matches!(event.action, Action::Halt))
}

/// Whether the step at `at` goes on with the previous one's group: nobody but the same actor could be chosen.
fn continues(path: &[Taken], at: usize) -> bool {
    at > 0 && path[at].enabled.only_actor() == Some(path[at - 1].actor())
}

#[cfg(test)]
pub mod tests;

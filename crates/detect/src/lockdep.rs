//! The lock-order validator: rules that locks must follow, checked whether or not anything got stuck.
//!
//! Sources: Urbańczyk 2021, 3.4 and 4.3 (an order graph over lock classes, with held stacks), and the
//! documented rules of Linux's `lockdep`, on which that is modelled:
//!
//! - *order*: each lock held points to each one asked for; a cycle means that some schedule may deadlock. It
//!   is reported with how every edge came about. Attempts wait for nobody and make no edge; recursive readers
//!   wait for no reader;
//! - *recursion*: asking for what one holds;
//! - *interrupts*: a lock that a handler takes is never held where that interrupt can come, nor does anything
//!   that is held so come behind it in the order;
//! - *read sides* of RCU keep nobody waiting for a lock, so they have no order and no rules about interrupts;
//!   nobody sleeps in one;
//! - *wait context*: a lock whose waiters sleep is not asked for while holding one whose waiters spin, nor in
//!   a handler;
//! - *sleeping while atomic*: nobody gives up the processor while holding a lock whose waiters spin;
//! - what is held is given back before returning to user mode, by whoever took it, and before its memory is
//!   freed or it is initialised anew; what lies in the heap is initialised before it is used.
//!
//! Classes: see `lockdep/classes.rs`. Two locks of one class may be nested, as a folder and a file in it are;
//! their order is then a matter of the locks themselves, so a cycle needs the same two locks in both orders,
//! and what was seen of a lock before it is initialised anew, freed or given to another object
//! ([`Action::LockRenew`]) does not count. A sequence of classes held that was checked once is not checked
//! again (the chain cache). Handlers have held stacks of their own.
//!
//! Limits: a cycle that a common outer lock makes harmless is reported too. Rules about interrupts are
//! applied once a thread was seen to turn them off, since a subject that never tells that cannot be judged by
//! them.

mod chains;
mod classes;
mod graph;
#[cfg(any(test, feature = "cases"))]
pub mod selftest;
#[cfg(test)]
mod tests;
mod usage;

use crate::facts::{Detector, Moment, What};
use crate::held::{Change, HeldLock};
use crate::{Finding, FindingKind, LockClass, LockRule, Role, Side};
use chains::Chains;
use classes::{ClassId, Classes};
use graph::{Graph, Kind, Made};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Action, Event, InterruptKind, LockId, Taking, ThreadId, VirtAddr, WaitKind};
use usage::{Mark, Usages};

#[derive(Clone, Debug, Default)]
pub struct Lockdep {
    classes: Classes,
    order: Graph<ClassId>,
    /// The order of locks within one class.
    twins: Graph<LockId>,
    usages: Usages,
    /// The sequences of classes, held and asked for, that were checked already.
    chains: Arc<Chains>,
    /// The lock that each thread asked for last.
    asked: Arc<BTreeMap<ThreadId, (LockId, Taking)>>,
    /// Threads that sleep from their next switch on, and where they decided to.
    sleeping: Arc<BTreeMap<ThreadId, Side>>,
    /// Threads that run with interrupts off, on a machine with several processors.
    masked: Arc<BTreeSet<ThreadId>>,
    /// Threads that deferred work of interrupts cannot interrupt.
    soft_masked: Arc<BTreeSet<ThreadId>>,
    /// Whether any thread was seen to turn interrupts off.
    interrupts_seen_off: bool,
    ran: Option<ThreadId>,
    /// The lock that was asked for just now, if there was nothing to say: nor is there when the thread has it.
    checked: Option<(ThreadId, LockId, Taking)>,
    reported: Arc<BTreeSet<String>>,
}

/// A lock that is asked for or taken.
struct Asked<'a> {
    lock: LockId,
    taking: Taking,
    class: ClassId,
    /// The kind of the handler that asks, if one does.
    handler: Option<InterruptKind>,
    /// The locks held before, in the order taken.
    held: Vec<HeldLock>,
    event: &'a Event,
}

impl Detector<Finding> for Lockdep {
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        match moment.what {
            What::Begin { .. } => {
                if let Some(left) = self.ran.filter(|ran| *ran != moment.thread) {
                    self.left(moment, left, findings);
                }
                self.ran = Some(moment.thread);
            }
            What::Accesses(_) => {}
            What::Event { event, change, .. } => self.act(moment, event, change, findings),
            What::End => self.ran = Some(moment.thread),
        }
    }
}

impl Lockdep {
    fn act(&mut self, moment: &Moment<'_>, event: &Event, change: Change, findings: &mut Vec<Finding>) {
        let thread = moment.thread;
        let checked = match event.action {
            Action::InterruptsOff => None,
            _ => self.checked.take(),
        };
        if let Change::Released { lock, owner } = change
            && let Action::Unlock { .. } = event.action
        {
            self.released(moment, event, (lock, owner), findings);
        }
        match &event.action {
            Action::LockInit { lock, subclass } => self.init(moment, event, (*lock, *subclass), findings),
            Action::LockRequest { lock, taking } => {
                Arc::make_mut(&mut self.asked).insert(thread, (*lock, *taking));
                if self.is_checked(moment, (*lock, *taking), false) {
                    self.checked = Some((thread, *lock, *taking));
                } else {
                    let asked = self.asked(moment, event, (*lock, *taking), None);
                    self.check(moment, &asked, findings);
                }
            }
            Action::Lock { lock, taking } => {
                if checked != Some((thread, *lock, *taking))
                    && !self.is_checked(moment, (*lock, *taking), true)
                {
                    let asked = self.asked(moment, event, (*lock, *taking), None);
                    self.check(moment, &asked, findings);
                }
                self.held_enabled(moment, event, (*lock, *taking), findings);
            }
            Action::LockRenew { lock } => self.renewed(*lock),
            Action::LockFound { lock, at, offset } => self.classes.found(*lock, *at, *offset),
            Action::InterruptsOff => {
                self.interrupts_seen_off = true;
                if !self.masked.contains(&thread) {
                    Arc::make_mut(&mut self.masked).insert(thread);
                }
            }
            Action::InterruptsOn => {
                if self.masked.contains(&thread) {
                    Arc::make_mut(&mut self.masked).remove(&thread);
                }
                self.all_held_enabled(moment, event, findings);
            }
            Action::SoftInterruptsOff => {
                Arc::make_mut(&mut self.soft_masked).insert(thread);
            }
            Action::SoftInterruptsOn => {
                if self.soft_masked.contains(&thread) {
                    Arc::make_mut(&mut self.soft_masked).remove(&thread);
                }
                self.all_held_enabled(moment, event, findings);
            }
            Action::InHandler { interrupt, action } => {
                self.act_in_handler(moment, event, (*interrupt, action), findings);
            }
            Action::Block { lock, .. } => self.blocks(moment, event, *lock),
            Action::Wake { thread } | Action::Create { child: thread } => self.wakes(*thread),
            Action::Switch { to } => {
                self.left(moment, thread, findings);
                self.ran = Some(*to);
            }
            Action::ReturnToUser => {
                if let Some(held) = moment.facts.held.locks_in(thread, None).next().cloned() {
                    let sides = vec![moment.side(Role::Returned, event), took(&held)];
                    self.report(
                        moment,
                        event.pc,
                        (LockRule::HeldInUserMode, held.lock, None),
                        sides,
                        findings,
                    );
                }
            }
            Action::Free { addr, size: Some(size), .. } => {
                let bytes = addr.0..addr.0.saturating_add(*size);
                let inside = moment.facts.held.all().find(|held| bytes.contains(&held.lock.0)).cloned();
                if let Some(held) = inside {
                    let sides = vec![moment.side(Role::Freed, event), took(&held)];
                    self.report(
                        moment,
                        event.pc,
                        (LockRule::FreedWhileHeld, held.lock, None),
                        sides,
                        findings,
                    );
                }
                self.twins.forget(&(LockId(bytes.start)..LockId(bytes.end)), LockId(0));
                self.classes.forget(bytes);
            }
            _ => {}
        }
    }

    /// Whether [`Lockdep::check`] has nothing to say that it has not said: the sequence of classes was checked,
    /// and none of the rules that look at the locks themselves applies. Nearly all locking is of that kind.
    /// `is_held`: the lock was taken just now, so it is among those held.
    fn is_checked(&self, moment: &Moment<'_>, (lock, taking): (LockId, Taking), is_held: bool) -> bool {
        let may_be_uninitialised = || {
            let unseen = self.classes.sees_initialisation() && !self.classes.is_initialised(lock);
            unseen && !taking.unmade && moment.facts.heap.block_of(VirtAddr(lock.0)).is_some()
        };
        if taking.attempt || taking.semaphore || may_be_uninitialised() {
            return false;
        }
        let Some(class) = self.classes.known(lock) else { return false };
        let held = || moment.facts.held.locks_in(moment.thread, None);
        let itself = if is_held { held().filter(|held| held.lock == lock).count() } else { 0 };
        // Taken again, or released before this was looked at.
        if itself != usize::from(is_held) {
            return false;
        }
        let mut prefix = chains::EMPTY;
        for other in held().filter(|held| !is_held || held.lock != lock) {
            let Some(known) = self.classes.known(other.lock) else { return false };
            let waits_wrongly = taking.wait == WaitKind::Sleeps && other.taking.wait == WaitKind::Spins;
            if other.lock == lock || known == class || waits_wrongly {
                return false;
            }
            let Some(longer) = self.chains.after(prefix, (known, &other.taking)) else { return false };
            prefix = longer;
        }
        self.chains.is_checked(prefix, (class, &taking))
    }

    fn asked<'a>(
        &mut self,
        moment: &Moment<'_>,
        event: &'a Event,
        (lock, taking): (LockId, Taking),
        handler: Option<InterruptKind>,
    ) -> Asked<'a> {
        let mut held: Vec<HeldLock> = moment.facts.held.locks_in(moment.thread, handler).cloned().collect();
        // Once it is taken, the last entry is the lock itself.
        let action = match &event.action {
            Action::InHandler { action, .. } => action,
            action => action,
        };
        if matches!(action, Action::Lock { .. })
            && let Some(at) = held.iter().rposition(|held| held.lock == lock)
        {
            held.remove(at);
        }
        let class = self.classes.of(lock, &moment.facts.heap);
        Asked { lock, taking, class, handler, held, event }
    }

    /// Checks all rules about asking for a lock.
    fn check(&mut self, moment: &Moment<'_>, asked: &Asked<'_>, findings: &mut Vec<Finding>) {
        self.check_initialised(moment, asked, findings);
        if asked.taking.attempt {
            return;
        }
        self.check_wait_context(moment, asked, findings);
        if asked.taking.semaphore {
            return;
        }
        let again = asked.held.iter().find(|held| held.lock == asked.lock).cloned();
        if let Some(held) = again {
            let granted = asked.taking.recursive && (!asked.taking.shared || held.taking.shared);
            if !granted {
                let sides = vec![asks(moment, asked), took(&held)];
                let about = (LockRule::Recursion, asked.lock, None);
                self.report(moment, asked.event.pc, about, sides, findings);
            }
            return;
        }
        let classes: Vec<ClassId> =
            asked.held.iter().map(|held| self.classes.of(held.lock, &moment.facts.heap)).collect();
        let held = asked.held.iter().zip(&classes).map(|(held, class)| (*class, &held.taking));
        let prefix = held.clone().try_fold(chains::EMPTY, |prefix, held| self.chains.after(prefix, held));
        let known = prefix.is_some_and(|prefix| self.chains.is_checked(prefix, (asked.class, &asked.taking)));
        if known && !classes.contains(&asked.class) {
            return;
        }
        Arc::make_mut(&mut self.chains).insert(held, (asked.class, &asked.taking));
        for (held, class) in asked.held.iter().zip(&classes) {
            if held.taking.is_read_side() {
                continue;
            }
            self.add_edge(moment, asked, (held, *class), findings);
        }
    }

    fn add_edge(
        &mut self,
        moment: &Moment<'_>,
        asked: &Asked<'_>,
        (held, class): (&HeldLock, ClassId),
        findings: &mut Vec<Finding>,
    ) {
        let kind = Kind {
            held_shared: held.taking.shared,
            asked_recursive_read: asked.taking.shared && asked.taking.recursive,
        };
        let made = || Made {
            held: held.lock,
            asked: asked.lock,
            took: took(held),
            asks: Side { role: Role::Locked { lock: asked.lock, held: held.lock }, ..asks(moment, asked) },
        };
        if class == asked.class {
            if !self.twins.contains(held.lock, asked.lock, kind) {
                let path = self.twins.closed_by((held.lock, asked.lock, kind));
                self.twins.insert(held.lock, asked.lock, kind, made());
                self.report_cycle(moment, asked, &made(), path, findings);
            }
            return;
        }
        if self.order.contains(class, asked.class, kind) {
            return;
        }
        let path = self.order.closed_by((class, asked.class, kind));
        self.order.insert(class, asked.class, kind, made());
        self.report_cycle(moment, asked, &made(), path, findings);
        for interrupt in [InterruptKind::Hard, InterruptKind::Soft] {
            self.check_inversion(moment, asked, (class, asked.class), interrupt, findings);
        }
    }

    /// Reports the cycle that `made` closes by `path`, if there is one.
    fn report_cycle(
        &mut self,
        moment: &Moment<'_>,
        asked: &Asked<'_>,
        made: &Made,
        path: Option<Vec<Arc<Made>>>,
        findings: &mut Vec<Finding>,
    ) {
        let Some(path) = path else { return };
        let edges: Vec<&Made> = std::iter::once(made).chain(path.iter().map(|made| &**made)).collect();
        let mut cycle: Vec<LockId> = edges.iter().map(|edge| edge.held).collect();
        let mut classes: Vec<LockClass> = cycle.iter().map(|lock| self.class_of(moment, *lock)).collect();
        let lowest = (0..cycle.len()).min_by_key(|&at| (classes[at], cycle[at])).unwrap_or(0);
        cycle.rotate_left(lowest);
        classes.rotate_left(lowest);
        let sides = edges.iter().flat_map(|edge| [edge.asks.clone(), edge.took.clone()]).collect();
        let kind = FindingKind::LockOrder { cycle, classes };
        self.push(Finding::new(kind, moment.thread, asked.event.pc, sides), findings);
    }

    fn class_of(&mut self, moment: &Moment<'_>, lock: LockId) -> LockClass {
        let id = self.classes.of(lock, &moment.facts.heap);
        self.classes.get(id)
    }

    fn check_initialised(&mut self, moment: &Moment<'_>, asked: &Asked<'_>, findings: &mut Vec<Finding>) {
        let seen = self.classes.is_initialised(asked.lock) || !self.classes.sees_initialisation();
        if seen || asked.taking.unmade {
            return;
        }
        let Some(live) = moment.facts.heap.block_of(VirtAddr(asked.lock.0)) else { return };
        let sides = vec![asks(moment, asked), live.allocated.clone()];
        self.report(moment, asked.event.pc, (LockRule::Uninitialised, asked.lock, None), sides, findings);
    }

    fn check_wait_context(&mut self, moment: &Moment<'_>, asked: &Asked<'_>, findings: &mut Vec<Finding>) {
        if asked.taking.wait == WaitKind::Spins {
            return;
        }
        let spinning = asked.held.iter().find(|held| held.taking.wait == WaitKind::Spins).cloned();
        let in_handler = asked.handler.is_some();
        if spinning.is_none() && !in_handler {
            return;
        }
        let other = spinning.as_ref().map(|held| held.lock);
        let mut sides = vec![asks(moment, asked)];
        sides.extend(spinning.as_ref().map(took));
        self.report(moment, asked.event.pc, (LockRule::WaitContext, asked.lock, other), sides, findings);
    }

    /// Whether the running thread cannot be interrupted.
    fn masks(&self, moment: &Moment<'_>) -> bool {
        moment.facts.held.masks_interrupts(moment.thread) || self.masked.contains(&moment.thread)
    }

    /// Takes note of all locks that the running thread holds where it can be interrupted.
    fn all_held_enabled(&mut self, moment: &Moment<'_>, event: &Event, findings: &mut Vec<Finding>) {
        let held = moment.facts.held.locks_in(moment.thread, None);
        let held: Vec<_> = held.map(|held| (held.lock, held.taking)).collect();
        held.into_iter().for_each(|held| self.held_enabled(moment, event, held, findings));
    }

    /// Takes note that the lock is held, for each kind of interrupt that can come there.
    fn held_enabled(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (lock, taking): (LockId, Taking),
        findings: &mut Vec<Finding>,
    ) {
        if self.masks(moment) {
            return;
        }
        let soft = (!self.soft_masked.contains(&moment.thread)).then_some(InterruptKind::Soft);
        for interrupt in [Some(InterruptKind::Hard), soft].into_iter().flatten() {
            let about = (lock, taking, interrupt, Mark::Enabled);
            self.mark(moment, event, about, findings);
        }
    }

    fn mark(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (lock, taking, interrupt, mark): (LockId, Taking, InterruptKind, Mark),
        findings: &mut Vec<Finding>,
    ) {
        if taking.is_read_side() {
            return;
        }
        let class = self.classes.of(lock, &moment.facts.heap);
        let role = match mark {
            Mark::InHandler => Role::TookInHandler { lock },
            Mark::Enabled => Role::HeldEnabled { lock },
        };
        if !self.usages.mark(class, interrupt, (mark, taking.shared), || moment.side(role, event)) {
            return;
        }
        self.check_usage(moment, event, (lock, class, interrupt), findings);
        self.check_inversion_of(moment, event, (lock, class, interrupt, mark), findings);
    }

    /// Checks whether one class is both taken in a handler and held where that handler could come.
    fn check_usage(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (lock, class, interrupt): (LockId, ClassId, InterruptKind),
        findings: &mut Vec<Finding>,
    ) {
        if !self.interrupts_seen_off {
            return;
        }
        let pair = [false, true].into_iter().find_map(|shared| {
            let handler = self.usages.get(class, interrupt, Mark::InHandler, shared)?;
            let enabled = self.usages.get(class, interrupt, Mark::Enabled, !shared)?;
            Some(vec![handler.clone(), enabled.clone()])
        });
        if let Some(sides) = pair {
            self.report(moment, event.pc, (LockRule::InterruptUnsafe, lock, None), sides, findings);
        }
    }

    /// Checks whether a new edge between two classes leads from a lock that handlers take to one held with
    /// interrupts on.
    fn check_inversion(
        &mut self,
        moment: &Moment<'_>,
        asked: &Asked<'_>,
        (from, to): (ClassId, ClassId),
        interrupt: InterruptKind,
        findings: &mut Vec<Finding>,
    ) {
        let marked = |mark| move |usages: &Usages, class| usages.get(class, interrupt, mark, false).is_some();
        let usages = self.usages.clone();
        let Some((safe, mut edges)) =
            self.order.backwards(from, |class| marked(Mark::InHandler)(&usages, class))
        else {
            return;
        };
        let Some((enabled, rest)) = self.order.forwards(to, |class| marked(Mark::Enabled)(&usages, class))
        else {
            return;
        };
        let here = self.order.forwards(from, |class| class == to).map(|(_, edges)| edges).unwrap_or_default();
        edges.extend(here);
        edges.extend(rest);
        self.report_inversion(moment, asked.event, (safe, enabled, interrupt), &edges, findings);
    }

    /// Checks whether a new mark is at an end of a path that is known.
    fn check_inversion_of(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (_, class, interrupt, mark): (LockId, ClassId, InterruptKind, Mark),
        findings: &mut Vec<Finding>,
    ) {
        let usages = self.usages.clone();
        let such =
            |other: ClassId| other != class && usages.get(other, interrupt, mark.opposite(), false).is_some();
        let found = match mark {
            Mark::InHandler => self.order.forwards(class, such).map(|(other, edges)| (class, other, edges)),
            Mark::Enabled => self.order.backwards(class, such).map(|(other, edges)| (other, class, edges)),
        };
        if let Some((safe, enabled, edges)) = found {
            self.report_inversion(moment, event, (safe, enabled, interrupt), &edges, findings);
        }
    }

    fn report_inversion(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (safe, enabled, interrupt): (ClassId, ClassId, InterruptKind),
        edges: &[Arc<Made>],
        findings: &mut Vec<Finding>,
    ) {
        let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return };
        if !self.interrupts_seen_off {
            return;
        }
        let (lock, other) = (first.held, Some(last.asked));
        let marks = [(safe, Mark::InHandler), (enabled, Mark::Enabled)];
        let marks = marks.map(|(class, mark)| self.usages.get(class, interrupt, mark, false).cloned());
        let [handler, held] = marks;
        let mut sides: Vec<Side> = handler.into_iter().collect();
        sides.extend(edges.iter().flat_map(|edge| [edge.asks.clone(), edge.took.clone()]));
        sides.extend(held);
        self.report(moment, event.pc, (LockRule::InterruptInversion, lock, other), sides, findings);
    }

    fn act_in_handler(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (interrupt, action): (InterruptKind, &Action),
        findings: &mut Vec<Finding>,
    ) {
        let context = Some(interrupt);
        match *action {
            Action::LockRequest { lock, taking } => {
                let asked = self.asked(moment, event, (lock, taking), context);
                self.check(moment, &asked, findings);
            }
            Action::Lock { lock, taking } => {
                let asked = self.asked(moment, event, (lock, taking), context);
                self.check(moment, &asked, findings);
                // Who would not have waited does no harm to whom it interrupts.
                if !taking.attempt {
                    self.mark(moment, event, (lock, taking, interrupt, Mark::InHandler), findings);
                }
                // Deferred work is interrupted as threads are.
                if interrupt == InterruptKind::Soft && !self.masks(moment) {
                    self.mark(moment, event, (lock, taking, InterruptKind::Hard, Mark::Enabled), findings);
                }
            }
            Action::LockFound { lock, at, offset } => self.classes.found(lock, at, offset),
            Action::Block { .. } => {
                let sides = vec![moment.side(Role::Waits, event)];
                self.report(moment, event.pc, (LockRule::SleepInAtomic, LockId(0), None), sides, findings);
            }
            _ => {}
        }
    }

    fn init(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (lock, subclass): (LockId, u32),
        findings: &mut Vec<Finding>,
    ) {
        if let Some(held) = moment.facts.held.all().find(|held| held.lock == lock).cloned() {
            let sides = vec![moment.side(Role::Initialised, event), took(&held)];
            self.report(moment, event.pc, (LockRule::InitialisedWhileHeld, lock, None), sides, findings);
        }
        self.renewed(lock);
        self.classes.init(lock, event.pc, subclass);
    }

    /// Forgets the order that a lock itself had with others, because it is another lock from here on. The
    /// order of classes stays.
    fn renewed(&mut self, lock: LockId) {
        self.twins.forget(&(lock..LockId(lock.0.saturating_add(1))), LockId(0));
        let Some(class) = self.classes.known(lock) else { return };
        if self.classes.get(class) == LockClass::Address(lock) {
            self.order.forget(&(class..ClassId(class.0 + 1)), ClassId(0));
            self.chains = Arc::default();
        }
    }

    fn released(
        &mut self,
        moment: &Moment<'_>,
        event: &Event,
        (lock, owner): (LockId, Option<ThreadId>),
        findings: &mut Vec<Finding>,
    ) {
        let rule = match owner {
            Some(owner) if owner == moment.thread => return,
            Some(_) => LockRule::ReleasedByAnother,
            None => LockRule::ReleasedNotHeld,
        };
        let mut sides = vec![moment.side(Role::Released, event)];
        sides.extend(moment.facts.held.released().filter(|_| owner.is_some()).map(took));
        self.report(moment, event.pc, (rule, lock, None), sides, findings);
    }

    fn blocks(&mut self, moment: &Moment<'_>, event: &Event, lock: Option<LockId>) {
        let asked = self.asked.get(&moment.thread);
        // Whoever spins stays on the processor.
        let spins =
            asked.is_some_and(|(asked, taking)| lock == Some(*asked) && taking.wait == WaitKind::Spins);
        if !spins {
            let side = moment.side(Role::Waits, event);
            Arc::make_mut(&mut self.sleeping).insert(moment.thread, side);
        }
    }

    fn wakes(&mut self, thread: ThreadId) {
        if self.sleeping.contains_key(&thread) {
            Arc::make_mut(&mut self.sleeping).remove(&thread);
        }
    }

    /// Takes note that `thread` no longer runs.
    fn left(&mut self, moment: &Moment<'_>, thread: ThreadId, findings: &mut Vec<Finding>) {
        if !self.sleeping.contains_key(&thread) {
            return;
        }
        let Some(side) = Arc::make_mut(&mut self.sleeping).remove(&thread) else { return };
        let spinning = moment
            .facts
            .held
            .locks_in(thread, None)
            .find(|held| held.taking.wait == WaitKind::Spins)
            .cloned();
        if let Some(held) = spinning {
            let pc = side.pc;
            let sides = vec![side, took(&held)];
            self.report(moment, pc, (LockRule::SleepInAtomic, held.lock, None), sides, findings);
        }
    }

    fn report(
        &mut self,
        moment: &Moment<'_>,
        pc: VirtAddr,
        (rule, lock, other): (LockRule, LockId, Option<LockId>),
        sides: Vec<Side>,
        findings: &mut Vec<Finding>,
    ) {
        let class = self.class_of(moment, lock);
        let other_class = other.map(|other| self.class_of(moment, other));
        let thread = sides.first().map_or(moment.thread, |side| side.thread);
        let kind = FindingKind::Locking { rule, lock, class, other, other_class };
        self.push(Finding::new(kind, thread, pc, sides), findings);
    }

    /// Adds a finding, each violation once.
    fn push(&mut self, finding: Finding, findings: &mut Vec<Finding>) {
        let signature = finding.signature().0;
        if !self.reported.contains(&signature) {
            Arc::make_mut(&mut self.reported).insert(signature);
            findings.push(finding);
        }
    }
}

fn took(held: &HeldLock) -> Side {
    Side {
        role: Role::Took { lock: held.lock },
        thread: held.thread,
        pc: held.pc,
        stack: held.stack.as_deref().cloned(),
        locks: Vec::new(),
    }
}

fn asks(moment: &Moment<'_>, asked: &Asked<'_>) -> Side {
    Side {
        role: Role::Asks { lock: asked.lock },
        thread: moment.thread,
        pc: asked.event.pc,
        stack: asked.event.stack.clone(),
        locks: asked.held.iter().map(|held| held.lock).collect(),
    }
}

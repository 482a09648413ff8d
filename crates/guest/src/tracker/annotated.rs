//! What an annotated kernel says, understood the way the hooks of a description are.

use super::{Signal, Tracker};
use crate::annotation::{self, Annotation};
use crate::kernel::Activity;
use crate::step_builder::StepBuilder;
use crate::threads::{Standing, Thread, Threads};
use crate::view::{View, registers};
use machine::Machine;
use std::sync::Arc;
use trace::{Action, LockId, PhysAddr, PointKind, Taking, ThreadId, VirtAddr};

impl Tracker {
    /// The machine stands behind a call of `annotations/rockfall.h`.
    pub fn annotated(&mut self, machine: &Machine, step: &mut StepBuilder, signals: &mut Vec<Signal>) {
        let registers = registers(machine, self.cpu);
        let Some(annotation) = annotation::decode(&registers, &View { machine, cpu: self.cpu }) else {
            return;
        };
        if !self.tracking {
            match annotation {
                Annotation::Begin => self.tracking = true,
                Annotation::Panic { message } => {
                    self.tell(machine, step, Action::Panic { message });
                    signals.push(Signal::Crashed);
                }
                _ => {}
            }
            return;
        }
        if step.narrated {
            self.remember(machine, &annotation);
        }
        let physical = |addr: VirtAddr| machine.translate(self.cpu, addr).unwrap_or(PhysAddr(addr.0));
        match annotation {
            Annotation::Begin => {
                self.threads = Threads::default();
                self.holders.clear();
            }
            Annotation::Switch { thread } => {
                self.switch_to(machine, step, thread.into(), signals);
                self.aside = None;
                self.threads.runner_mut().waits_at = None;
            }
            Annotation::Idle => {
                self.nobody_runs(machine, step, signals);
                self.aside = None;
            }
            Annotation::Create { child } => self.created(machine, step, child.into(), signals),
            Annotation::Exit => {
                self.tell(machine, step, Action::Exit);
                if let Some(thread) = self.threads.current_mut() {
                    thread.standing = Standing::Exiting;
                }
            }
            Annotation::Sleep => self.waits_in(Activity::Sleep),
            Annotation::Device => self.waits_in(Activity::Device),
            Annotation::Preemption { allowed } => self.preemption_off = !allowed,
            Annotation::Yield => {
                self.tell(machine, step, Action::Yield);
                self.yielded(machine, step);
            }
            Annotation::Runnable { thread } | Annotation::NotRunnable { thread } => {
                let queued = matches!(annotation, Annotation::Runnable { .. });
                if let Some(thread) = self.threads.get_mut(thread.into()) {
                    thread.queued = queued;
                    for activity in [Activity::Sleep, Activity::Device] {
                        if queued && thread.inside(activity) {
                            thread.leave(activity);
                        }
                    }
                }
                self.refresh(machine, step, signals);
            }
            Annotation::Lock { lock } => {
                self.tell(
                    machine,
                    step,
                    Action::LockRequest { lock: LockId(lock), taking: Taking::default() },
                );
                signals.push(Signal::Point(PointKind::Lock));
            }
            Annotation::Locked { lock } => self.acquired(machine, step, None, LockId(lock), false),
            Annotation::Blocked { lock, owner } => {
                let (lock, owner) = (LockId(lock), Some(ThreadId(owner)));
                self.tell(machine, step, Action::Block { lock: Some(lock), owner });
                if let Some(thread) = self.threads.current_mut() {
                    thread.yields_for = Some(lock);
                }
            }
            Annotation::TryLock { .. } => signals.push(Signal::Point(PointKind::Lock)),
            Annotation::Tried { lock, succeeded } => {
                if succeeded {
                    self.acquired(machine, step, None, LockId(lock), true);
                }
            }
            Annotation::Unlock { lock } => self.released(machine, step, None, LockId(lock), None),
            Annotation::Unlocked { .. } => signals.push(Signal::Point(PointKind::Unlock)),
            Annotation::Down { semaphore } => {
                self.tell(machine, step, Action::Down { semaphore: LockId(semaphore) });
                self.threads.runner_mut().yields_for = None;
            }
            Annotation::Up { semaphore } => {
                self.tell(machine, step, Action::Up { semaphore: LockId(semaphore) });
                let waits = |thread: &&mut Thread| thread.yields_for == Some(LockId(semaphore));
                self.threads.iter_mut().filter(waits).for_each(|thread| thread.yields_for = None);
            }
            Annotation::Alloc { addr, size } => {
                let size = size.min(machine.memory.size());
                Arc::make_mut(&mut self.heap).insert(addr.0, size);
                self.tell(machine, step, Action::Alloc { addr, phys: physical(addr), size });
            }
            Annotation::Free { addr } => {
                let size = Arc::make_mut(&mut self.heap).remove(&addr.0);
                self.tell(machine, step, Action::Free { addr, phys: physical(addr), size });
            }
            Annotation::Panic { message } => {
                self.tell(machine, step, Action::Panic { message });
                signals.push(Signal::Crashed);
            }
            Annotation::Ready => signals.push(Signal::Ready),
            Annotation::TestStart { .. } => signals.push(Signal::TestStart),
            Annotation::TestEnd { .. } => signals.push(Signal::TestEnd),
            Annotation::Point => signals.push(Signal::Point(PointKind::Function)),
            Annotation::Fault { vector, addr } => {
                self.tell(machine, step, Action::Fault { vector, error: None, addr: Some(addr) });
                signals.push(Signal::Crashed);
            }
            Annotation::SystemCall { number } => {
                self.tell(machine, step, Action::SystemCall { number });
                self.threads.runner_mut().system_call = Some(number);
            }
            Annotation::Message { text } => self.tell(machine, step, Action::Console { line: text }),
            Annotation::Failed { check, found } => {
                self.tell(machine, step, Action::CheckFailed { check, found });
            }
            Annotation::Result { status: 0, .. } | Annotation::Checked | Annotation::Input { .. } => {}
            Annotation::Result { test, status } => {
                let found = format!("status {status}");
                self.tell(machine, step, Action::CheckFailed { check: test, found });
            }
        }
    }

    /// A thread says that it gives way where it does; who takes over may say so on a stack of its own.
    fn remember(&mut self, machine: &Machine, annotation: &Annotation) {
        let Some(current) = self.threads.current() else { return };
        let gives_way = match annotation {
            Annotation::NotRunnable { thread } => u64::from(*thread) == current.key,
            Annotation::Blocked { .. }
            | Annotation::Sleep
            | Annotation::Device
            | Annotation::Yield
            | Annotation::Exit => true,
            Annotation::Idle => {
                self.aside = Some(current.waits_at.clone().unwrap_or_default());
                false
            }
            Annotation::Switch { .. } => {
                self.aside.clone_from(&current.waits_at);
                false
            }
            _ => false,
        };
        if gives_way {
            let stack = self.stack(machine);
            self.threads.runner_mut().waits_at = Some(Arc::new(stack));
        }
    }

    /// Until it can run again.
    fn waits_in(&mut self, activity: Activity) {
        if let Some(thread) = self.threads.current_mut().filter(|thread| !thread.inside(activity)) {
            thread.enter(activity);
        }
    }
}

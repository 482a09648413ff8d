//! Loops that only another thread can end: who is in one waits, and is woken by what ends it.
//!
//! A loop that spins is known for certain ([`crate::driving::spinning`]); one that yields, or tries an atomic
//! instruction and counts its tries, is judged by how often it did (Blum 2018, 3.4.6).

use super::{Retries, Uniprocessor};
use crate::driving::spinning::{self, Bounds, Spin, Value};
use crate::hooks::threads::{Attempt, Loop, Scheduled, Thread};
use machine::{Events, Machine, Stop, StopSet};
use std::sync::Arc;
use trace::{Access, Action, Frame, Point, PointKind, Remark, Stack, Step, StepEnd, ThreadId};

/// At how many moments a thread that goes round is looked at, and how far they are apart: a number that no
/// loop has in common with its length.
const SAMPLES: u32 = 64;
const SAMPLE_INSTRUCTIONS: u64 = 1_009;

impl Uniprocessor {
    /// Whether the running thread is in a loop of a program that only another one can end; if so it waits
    /// from now on. With a program under test only its own loops are looked at; where the kernel is tested,
    /// those of all programs, because a lock of a program that spins gives the processor to others by the
    /// timer alone.
    pub(super) fn spins(&mut self) -> bool {
        if self.kernel().tested.is_some() && !self.tracker.runs_tested(&self.machine) {
            return false;
        }
        if self.machine.privilege(self.cpu()) == 0 {
            return false;
        }
        let mut probe = self.look_ahead();
        let spin = Spin::find(&mut probe, self.cpu(), Bounds::Program);
        self.lookahead.probe = Some(probe);
        let Some(spin) = spin else { return false };
        let kept = self.kernel().tested.is_none().then(|| Arc::new(spin.clone()));
        let waits = self.waits_in(spin);
        if let Some(thread) = self.tracker.threads.current_mut().filter(|_| waits) {
            Arc::make_mut(&mut thread.looping).spin = kept;
        }
        waits
    }

    /// Whether the running thread of a program has tried an atomic instruction for so long without changing
    /// anything that it is taken to wait; if so it does from now on.
    pub(super) fn tries_in_vain(&mut self) -> bool {
        if !self.tracker.runs_tested(&self.machine) || self.machine.privilege(self.cpu()) == 0 {
            return false;
        }
        let tries = self.patience.tries_max;
        let mut probe = self.look_ahead();
        let read = spinning::tries_in_vain(&mut probe, self.cpu(), tries);
        self.lookahead.probe = Some(probe);
        let (Some(read), Some(thread)) = (read, self.tracker.threads.current_mut()) else { return false };
        let looping = Arc::make_mut(&mut thread.looping);
        (looping.waits, looping.accesses) = (true, read);
        self.builder.remark(Remark::TriedInVain { tries });
        self.tracker.emit(&self.machine, &mut self.builder, Action::Block { lock: None, owner: None });
        true
    }

    /// Counts what the thread of a step tried in vain in it; whoever did so often enough is taken to wait.
    fn count_tries(&mut self, step: &mut Step) {
        let tries = self.patience.tries_between_points_max;
        let own = |access: &&Access| access.atomic && access.kind.writes();
        let attempt = step.accesses.iter().find(own).copied();
        let Some(thread) = self.tracker.threads.iter_mut().find(|thread| thread.id == step.thread) else {
            return;
        };
        if thread.looping.waits {
            return;
        }
        let others = |access: &Access, tried: &Access| {
            access.kind.writes() && access.pc != tried.pc && access.overlaps(tried)
        };
        let progress = step.events.iter().any(|event| is_progress(&event.action));
        // A step in which nothing was tried says nothing.
        let Some(tried) = attempt else {
            if progress && thread.looping.tries.is_some() {
                Arc::make_mut(&mut thread.looping).tries = None;
            }
            return;
        };
        let left = Value::now(&self.machine, tried.phys, tried.size.min(8) as u8);
        let attempt = Attempt { pc: tried.pc, left };
        let alone = !progress && !step.accesses.iter().any(|access| others(access, &tried));
        let count = match thread.looping.tries {
            Some((same, count)) if same == attempt && alone => count + 1,
            _ if alone => 1,
            _ => 0,
        };
        let looping = Arc::make_mut(&mut thread.looping);
        looping.tries = (count > 0).then_some((attempt, count));
        if count > tries {
            (looping.waits, looping.accesses) = (true, vec![tried]);
            step.remarks.push(Remark::TriedInVain { tries });
        }
    }

    /// Whether the running thread, which has yielded in vain in the kernel, will do so for ever: the loop
    /// around the yield comes back to the same state, and no tick changes what it reads. Looking costs time,
    /// so it is asked less and less often.
    pub(super) fn yields_in_vain(&mut self) -> bool {
        let yields_max = self.patience.kernel_yields_max;
        let often =
            |thread: &Thread| thread.looping.yields >= yields_max && thread.looping.yields.is_power_of_two();
        if !self.tracker.threads.current().is_some_and(often) || !self.interruptible() {
            return false;
        }
        let mut probe = self.look_ahead();
        let spin = Spin::find(&mut probe, self.cpu(), Bounds::Yields)
            .filter(|spin| !spin.waits_for_clock(&mut probe));
        self.lookahead.probe = Some(probe);
        spin.is_some_and(|spin| self.waits_in(spin))
    }

    /// Makes the running thread, which is in that loop, wait from now on.
    fn waits_in(&mut self, spin: Spin) -> bool {
        self.waits_until_changed(spin.condition)
    }

    /// Makes the running thread wait until one of these values has changed.
    pub(super) fn waits_until_changed(&mut self, condition: Vec<Value>) -> bool {
        let Some(thread) = self.tracker.threads.current_mut() else { return false };
        let looping = Arc::make_mut(&mut thread.looping);
        (looping.waits, looping.condition) = (true, Some(condition));
        let tracker = &self.tracker;
        let waits = tracker.threads.current();
        let lock = waits.and_then(|thread| tracker.wanted(thread)).map(|(_, lock)| lock);
        let owner = waits.and_then(|thread| tracker.owner(&self.machine, thread));
        self.tracker.emit(&self.machine, &mut self.builder, Action::Block { lock, owner });
        true
    }

    /// Whether the running thread is in the loop in which a lock is waited for; if so it waits from now on.
    pub(super) fn spins_for_lock(&mut self) -> bool {
        let Some(lock) = self.tracker.may_spin_for(&self.machine) else { return false };
        let mut probe = self.look_ahead();
        let spin = Spin::find(&mut probe, self.cpu(), Bounds::Kernel(self.kernel()));
        self.lookahead.probe = Some(probe);
        if spin.is_some() {
            self.tracker.spins_for(&self.machine, &mut self.builder, lock);
        }
        spin.is_some()
    }

    pub(super) fn spun(&mut self, me: Option<ThreadId>) -> StepEnd {
        self.current = None;
        let pc = self.machine.pc(self.cpu());
        StepEnd::Point(Point { kind: PointKind::Blocked, thread: me.unwrap_or_default(), pc })
    }

    /// Whether the program's thread stands at a point where it stood before, and would come there for ever.
    pub(super) fn circles(&mut self) -> bool {
        self.kernel().tested.is_some() && self.machine.privilege(self.cpu()) != 0 && self.spins()
    }

    /// Whether the running thread stood at one of its latest points as it stands now.
    pub(super) fn repeats_point(&mut self) -> bool {
        let hash = self.registers_hash();
        let thread = self.tracker.threads.current_mut();
        thread.is_some_and(|thread| thread.recent_states.again(hash))
    }

    /// A hash of the processor's registers.
    pub(super) fn registers_hash(&self) -> u64 {
        let cpu = self.machine.cpu(self.cpu());
        let mut hasher = machine::hash::StableHasher::new();
        let state = [cpu.pc(), u64::from(cpu.flags.image())];
        cpu.regs.iter().chain(&state).for_each(|word| hasher.word(*word));
        hasher.finish()
    }

    pub(super) fn standing_in(&self, machine: &Machine, thread: ThreadId) -> Stack {
        let Some(thread) = self.tracker.threads.by_id(thread) else { return Vec::new() };
        let mut stack = self.tracker.stack_of(machine, thread);
        let kernel = self.kernel();
        if kernel.tested.is_none() {
            stack.truncate(stack.iter().take_while(|frame| kernel.image.covers(frame.pc)).count());
        }
        stack
    }

    /// What the stacks of a running thread have in common at some moments from now on: a thread that goes
    /// round in a loop may be met in any of the functions that it calls there.
    pub(super) fn common_stack(&self, thread: ThreadId) -> Stack {
        let mut ahead = self.machine.clone();
        let mut common = self.standing_in(&ahead, thread);
        for _ in 0..SAMPLES {
            if ahead.run(self.cpu(), &StopSet::after(SAMPLE_INSTRUCTIONS), &mut Events::off()) != Stop::Budget
            {
                break;
            }
            let other = self.standing_in(&ahead, thread);
            let callers = |(a, b): &(&Frame, &Frame)| (&a.function, a.line) == (&b.function, b.line);
            let same = common.iter().rev().zip(other.iter().rev()).take_while(callers).count();
            let next = |stack: &Stack| {
                let at = stack.len().checked_sub(same + 1)?;
                stack[at].function.clone()
            };
            // The function with the loop is kept too, although its line differs from moment to moment.
            let kept = same + usize::from(next(&common).is_some_and(|name| next(&other) == Some(name)));
            common.drain(..common.len() - kept);
        }
        common
    }

    /// Takes threads that yield in a loop to wait, and wakes those that wait if this step wrote what they
    /// read.
    pub(super) fn judge_loops(&mut self, step: &mut Step) {
        let program = self.kernel().tested.is_some();
        let yields_max =
            if program { self.patience.program_yields_max } else { self.patience.kernel_yields_max };
        self.follow_rounds(step);
        if program {
            self.count_tries(step);
        }
        self.retries.watch(step);
        let (machine, buffers) = (&self.machine, self.stores.buffers.as_deref());
        let changed = |thread: ThreadId, value: &Value| match buffers {
            Some(buffers) => buffers.sees_change(machine, thread, value),
            None => value.has_changed(machine),
        };
        for thread in self.tracker.threads.iter_mut() {
            if thread.looping.yields == 0 && !thread.looping.waits {
                continue;
            }
            if thread.id != step.thread && thread.looping.given_time {
                Arc::make_mut(&mut thread.looping).given_time = false;
            }
            if thread.id == step.thread && thread.looping.condition.is_none() {
                // The kernel's own writes on behalf of a program say nothing of what the program is about.
                let progress = match program {
                    true => step.events.iter().any(|event| is_progress(&event.action)),
                    false => {
                        let own_write = step.accesses.iter().any(|access| access.kind.writes());
                        own_write && !step.events.iter().any(|event| event.action == Action::Yield)
                    }
                };
                if thread.looping.yields >= yields_max {
                    Arc::make_mut(&mut thread.looping).waits = true;
                    step.remarks.push(Remark::TakenToWait { yields: yields_max });
                } else if progress {
                    thread.looping = Arc::default();
                }
            } else if let Some(condition) = &thread.looping.condition {
                if condition.iter().any(|value| changed(thread.id, value)) {
                    thread.looping = Arc::default();
                }
            } else if thread.looping.waits {
                let met = &thread.looping.accesses;
                if step.accesses.iter().any(|a| a.kind.writes() && met.iter().any(|b| a.overlaps(b))) {
                    thread.looping = Arc::default();
                }
            }
        }
        if self.nobody_is_free() && !self.stores_wait() {
            for thread in
                self.tracker.threads.iter_mut().filter(|thread| thread.turn == Scheduled::PassedOver)
            {
                thread.turn = Scheduled::LastChance;
            }
        }
        self.retry_loops();
    }

    /// Tries those again that were taken to wait, when nobody else can go on.
    pub(super) fn retry_loops(&mut self) {
        if self.nobody_is_free() && !self.stores_wait() && self.retries.count < self.patience.retries_max {
            let judged = |thread: &&mut Thread| thread.looping.waits && thread.looping.condition.is_none();
            let waiting = self.tracker.threads.iter_mut().filter(judged);
            let mut tried = 0;
            let mut last = None;
            for thread in waiting {
                thread.looping = Arc::default();
                (tried, last) = (tried + 1, Some(thread.id));
            }
            if tried == 0 {
                tried = self.give_time();
            }
            let alone = last.filter(|_| tried == 1);
            if tried > 0 {
                let count = self.retries.count + 1;
                self.retries = match alone == self.retries.alone {
                    true => Retries { count, ..self.retries },
                    false => Retries { count, alone, ..Retries::default() },
                };
            }
        }
    }
}

impl Uniprocessor {
    /// Lets time pass for those who go round in loops of programs, when nobody else can go on; how many these are.
    fn give_time(&mut self) -> usize {
        let mut given = 0;
        for thread in self.tracker.threads.iter_mut() {
            if let Some(spin) = thread.looping.spin.clone()
                && thread.looping.waits
                && !thread.looping.given_time
            {
                thread.clock = Some(spin);
                thread.looping = Arc::new(Loop { given_time: true, ..Loop::default() });
                given += 1;
            }
        }
        given
    }
}

impl Retries {
    /// Begins to count anew where the one thread that is tried again and again has left its loop, as one does that
    /// offers the processor so many times and goes on: it did more between two offers than in any round of the loop.
    fn watch(&mut self, step: &Step) {
        if self.alone != Some(step.thread) {
            return;
        }
        self.since += step.instructions;
        if !step.events.iter().any(|event| event.action == Action::Yield) {
            return;
        }
        if self.shortest > 0 && self.since > LEFT_ITS_LOOP * self.shortest {
            *self = Self { alone: self.alone, ..Self::default() };
        } else if self.shortest == 0 || self.since < self.shortest {
            self.shortest = self.since;
        }
        self.since = 0;
    }
}

/// A thread has left its loop if it did so many times more than in a round of it.
const LEFT_ITS_LOOP: u64 = 2;

/// Whether an action is one that no program does while it waits for another: everything but asking for locks
/// and releasing them (Blum 2018, 3.4.6).
const fn is_progress(action: &Action) -> bool {
    matches!(action, Action::Create { .. } | Action::Wake { .. } | Action::Alloc { .. } | Action::Free { .. })
}

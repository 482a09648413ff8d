//! The machine's log becomes accesses of the step.
//!
//! Three things are learned from it besides: what the kernel's accesses to a program's memory depended on, namely the
//! entries of the page table; whether ignored code wrote, where a tick could come, what the scheduler works on
//! ([`Action::Exposed`]); and, before the test begins, which words those are ([`SchedulerWords`]).
//!
//! Limits: where preemption is a variable's matter, a stretch of the log counts as guarded from the first write to that
//! variable on, up to the next stop of the machine.

use super::{CPU, Tracker};
use crate::kernel::Activity;
use crate::recorder::{Logged, Recorder, Scope, Weighed};
use machine::{Events, Happening, Machine, Rw};
use std::collections::BTreeMap;
use trace::{Action, PhysAddr, VirtAddr};

impl Tracker {
    /// Takes the machine's log into the step. Accesses made in quiet functions do not count.
    pub fn drain(&mut self, machine: &Machine, log: &mut Events) {
        if log.is_empty() {
            return;
        }
        let _ = self.take_log(machine, log);
        self.open = self.kernel.interrupts_as_lock
            && machine.cpu(CPU).flags.has(machine::x86::flags::IF)
            && self.preemption_allowed(machine);
    }

    /// Takes what has come so far of a stretch that goes on: what follows is weighed as if nothing had been taken.
    pub(super) fn drain_so_far(&mut self, machine: &Machine, log: &mut Events) {
        if !log.is_empty() {
            self.open = self.take_log(machine, log);
        }
    }

    /// Says whether a tick could have come at the end of what was taken.
    #[must_use]
    fn take_log(&mut self, machine: &Machine, log: &mut Events) -> bool {
        let thread = self.threads.current();
        if let Some(scheduler) = &mut self.scheduler {
            let quiet = thread.is_some_and(|thread| thread.quiet > 0);
            let inside = |activity| thread.is_some_and(|thread| thread.inside(activity));
            let schedules = inside(Activity::Timer) || inside(Activity::Switch);
            let key = thread.map_or(0, |thread| thread.key);
            let guarded = schedules || !self.open && !quiet;
            scheduler.learn(machine, log, key, self.recorder.scope(), guarded);
            return self.open;
        }
        let looks = self.sights.looks();
        if thread.is_none_or(|thread| thread.quiet > 0) {
            if looks {
                let before = self.recorder.accesses.len();
                machine.drain_distinct(log, |event| {
                    if let machine::Event::Access(access) = event
                        && access.rw == Rw::Write
                        && let Some(phys) = access.physical
                    {
                        self.sights.hide(before, phys, access.size);
                    }
                });
            }
            log.clear();
            return self.open;
        }
        let id = thread.map(|thread| thread.id);
        self.recorder.called_from = thread.and_then(|thread| thread.called_from).map(VirtAddr);
        self.recorder.program_counts = thread.is_none_or(|thread| !thread.inside(Activity::Trusted));
        let before = self.recorder.accesses.len();
        let (recorder, mut open, mut exposed) = (&mut self.recorder, self.open, None);
        let guards = &self.kernel.guards;
        // What the kernel does to a program's memory depends on the page table of that moment.
        let mut reached: Vec<(VirtAddr, u32, VirtAddr)> = Vec::new();
        let settle = |recorder: &mut Recorder, reached: &mut Vec<_>, directory: u64| {
            for (addr, size, pc) in reached.drain(..) {
                depend(machine, recorder, directory, addr, size, pc);
            }
        };
        machine.drain_distinct(log, |event| match event {
            machine::Event::Access(access) => {
                let logged = Logged {
                    addr: access.address,
                    phys: access.physical.unwrap_or(PhysAddr(access.address.0)),
                    size: access.size,
                    writes: access.rw == Rw::Write,
                    atomic: access.atomic,
                    pc: access.pc,
                };
                if recorder.scope().reaches_out(access.pc.0, access.address.0) {
                    reached.push((access.address, access.size, access.pc));
                }
                // Who may preempt is no longer known from here on.
                if open && logged.writes && guards.iter().any(|range| range.contains(&logged.addr.0)) {
                    open = false;
                }
                let (phys, size, writes) = (logged.phys, logged.size, logged.writes);
                let weighed = recorder.record(logged, open, |pc| {
                    let mut bytes = [0; 16];
                    let there =
                        (1..=16).rev().find(|&n| machine.read_virt(CPU, pc, &mut bytes[..n])).unwrap_or(0);
                    bytes[..there].to_vec()
                });
                if weighed == Weighed::Ignored && writes && looks {
                    self.sights.hide(recorder.accesses.len(), phys, size);
                }
                if weighed == Weighed::Exposed {
                    exposed = Some((access.pc, recorder.accesses.len()));
                }
            }
            machine::Event::Happening(_, Happening::Exception { exception, pc }) => {
                if let Some(addr) = exception.address
                    && recorder.scope().reaches_out(pc.0, addr)
                {
                    reached.push((VirtAddr(addr), 1, pc));
                }
            }
            machine::Event::Happening(_, Happening::AddressSpace { old, .. }) => {
                settle(recorder, &mut reached, old);
            }
            machine::Event::Happening(..) => {}
        });
        settle(recorder, &mut reached, machine.cpu(CPU).cr3);
        if self.recorder.accesses.len() > before {
            self.attribute(machine, id, before);
        }
        if let Some((pc, accesses_before)) = exposed {
            self.events.push(trace::Event { action: Action::Exposed, pc, accesses_before, stack: None });
        }
        open
    }
}

/// An access by the instruction at `pc` found its place by the entries of the page table.
fn depend(
    machine: &Machine,
    recorder: &mut Recorder,
    directory: u64,
    addr: VirtAddr,
    size: u32,
    pc: VirtAddr,
) {
    let last = VirtAddr(addr.0 + u64::from(size.max(1)) - 1).page().0;
    let mut page = addr.page().0;
    while page <= last {
        for entry in machine.page_entries(CPU, directory, VirtAddr(page)).into_iter().flatten() {
            recorder.depends(entry, machine::entries::ENTRY_BYTES, pc);
        }
        page += machine::entries::PAGE_BYTES;
    }
}

/// How far below the stack pointer functions may have been that have returned since.
const STACK_BELOW_BYTES: u64 = 512;
const STACK_PAGE_BYTES: u64 = 4096;

/// Words that the scheduler works on, learned before the test begins: what the timer's handler, the change-over and
/// guarded code that the description ignores write for more than one thread.
#[derive(Clone, Debug, Default)]
pub struct SchedulerWords {
    /// By physical word: for whom, `None` if for several.
    words: BTreeMap<u64, Option<u64>>,
}

impl SchedulerWords {
    /// Takes the log of a stretch that was `guarded` against ticks, or not.
    fn learn(&mut self, machine: &Machine, log: &mut Events, key: u64, scope: &Scope, guarded: bool) {
        if !guarded {
            log.clear();
            return;
        }
        let sp = machine.cpu(CPU).regs[crate::state::SP];
        let stack = sp.saturating_sub(STACK_BELOW_BYTES)..VirtAddr(sp).page().0 + STACK_PAGE_BYTES;
        machine.drain_distinct(log, |event| {
            let machine::Event::Access(access) = event else { return };
            // A stack is taken over by the next thread long before that one counts as running.
            let on_stack = stack.contains(&access.address.0);
            if access.rw != Rw::Write || on_stack || !scope.ignores(access.pc.0) {
                return;
            }
            let Some(phys) = access.physical else { return };
            let last = (phys.0 + u64::from(access.size.max(1)) - 1) / 4;
            for word in phys.0 / 4..=last {
                let by = self.words.entry(word).or_insert(Some(key));
                if *by != Some(key) {
                    *by = None;
                }
            }
        });
    }

    /// Those of several threads, without `known`: variables whose part in it is understood.
    #[must_use]
    pub fn shared(&self, known: &[PhysAddr]) -> Vec<u64> {
        let shared = self.words.iter().filter(|(_, by)| by.is_none()).map(|(word, _)| *word);
        shared.filter(|word| known.iter().all(|phys| phys.0 / 4 != *word)).collect()
    }
}

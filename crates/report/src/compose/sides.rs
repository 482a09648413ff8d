//! Both sides of a finding: who did what, where, with which locks, in which row.

use super::Composer;
use super::draft::{Draft, SightedAccess};
use crate::story::SideView;
use crate::words;
use detect::{FindingKind, Role};
use trace::{Access, Event, Frame, ThreadId, VirtAddr};

impl Composer<'_> {
    pub(super) fn sides(
        &self,
        drafts: &[Draft<'_>],
        column: &dyn Fn(ThreadId) -> Option<usize>,
    ) -> Vec<SideView> {
        let library = self.library;
        let last_event = drafts.last().and_then(|draft| draft.events.last().copied());
        let row_of = |side: &detect::Side| {
            let first_of_two = match self.finding.kind {
                FindingKind::DoubleFree { .. } => side.role == Role::Freed,
                FindingKind::DoubleAllocation { .. } => side.role == Role::Allocated,
                _ => false,
            };
            let heap =
                matches!(side.role, Role::Allocated | Role::AllocatedAgain | Role::Freed | Role::FreedAgain);
            drafts.iter().rposition(|draft| {
                let event = |event: &&Event| {
                    let again = first_of_two && last_event.is_some_and(|last| std::ptr::eq(*event, last));
                    event.pc == side.pc && !again && (!heap || self.is_of_bug(event))
                };
                let access = |seen: &SightedAccess<'_>| !heap && seen.access.pc == side.pc;
                draft.thread == side.thread
                    && (draft.events.iter().any(event) || draft.accesses.iter().any(access))
            })
        };
        let view = |side: &detect::Side| {
            let row = row_of(side).or_else(|| {
                let last = drafts.iter().rposition(|draft| draft.thread == side.thread);
                last.filter(|_| matches!(side.role, Role::Waits | Role::Loops | Role::Panicked))
            });
            let stack = match &side.stack {
                Some(stack) => stack.clone(),
                None => match row.and_then(|row| self.last_access(&drafts[row], side.pc)) {
                    Some(seen) => library.stack_at(&seen),
                    None => library.resolve.frames(side.pc),
                },
            };
            let place = match side.role {
                Role::Accessed(_) | Role::Loops => stack.first().map(|frame| library.place(frame)),
                Role::Waits => library.waiting(&stack),
                Role::Panicked => library.relevant_of_panic(&stack),
                _ => library.relevant(&stack),
            };
            let wait = match (&side.role, &self.finding.kind) {
                (
                    Role::Waits,
                    FindingKind::Deadlock { cycle: waits } | FindingKind::LostWakeup { waiting: waits },
                ) => waits.iter().find(|wait| wait.thread == side.thread),
                _ => None,
            };
            let waits_for = match side.role {
                Role::Locked { lock, .. }
                | Role::Took { lock }
                | Role::Asks { lock }
                | Role::TookInHandler { lock }
                | Role::HeldEnabled { lock } => Some(lock),
                _ => wait.and_then(|wait| wait.lock),
            };
            let loops = wait.is_some_and(|wait| wait.loops)
                || (side.role == Role::Waits && stack.iter().any(|frame| self.yields(frame)));
            let awaits = || {
                self.awaits(&stack)
                    .filter(|_| side.role == Role::Waits)
                    .map(|what| what.in_words().to_string())
            };
            SideView {
                title: match loops {
                    true => format!("{} goes round in a loop", side.thread),
                    false => format!("{} {}", side.thread, side.role.verb()),
                },
                column: column(side.thread),
                row,
                place: place.unwrap_or_else(|| library.at(side.pc)),
                stack: library.places(&stack),
                scheduler_frames: if side.role == Role::Waits { library.waiting_frames(&stack) } else { 0 },
                locks: Some(side.locks.iter().map(|&lock| library.lock(lock)).collect()),
                waits_for: waits_for.map(|lock| library.lock(lock)).or_else(awaits),
                loops,
            }
        };
        self.finding.sides.iter().map(view).collect()
    }

    pub(super) fn yields(&self, frame: &Frame) -> bool {
        frame.function.as_deref().is_some_and(self.library.context.yields)
    }

    /// The last access of the row by that instruction: the bad one, where the finding names one.
    pub(super) fn last_access<'d>(&self, row: &Draft<'d>, pc: VirtAddr) -> Option<SightedAccess<'d>> {
        let last = |such: &dyn Fn(&Access) -> bool| {
            row.accesses.iter().rev().find(|seen| seen.access.pc == pc && such(seen.access)).copied()
        };
        last(&|access| self.is_the_access(access)).or_else(|| last(&|_| true))
    }
}

/// The threads that go round in a loop, and where.
pub(super) fn rounds(sides: &[SideView]) -> Vec<String> {
    let round =
        |side: &SideView| format!("{} goes round in a loop in {}", words::who(side), side.place.in_words());
    sides.iter().filter(|side| side.loops).map(round).collect()
}

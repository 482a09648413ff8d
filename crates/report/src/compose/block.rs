//! The block of memory that a finding is about: what became of it, and what lies near it.

use super::Composer;
use crate::words;
use detect::{Block, Finding, FindingKind};
use std::collections::BTreeMap;
use trace::{Action, Event, Occurrence, PhysAddr, Step, ThreadId, VirtAddr};

/// How far away a block may be that was perhaps meant.
const NEAR_BYTES: u64 = 64;

/// The allocations and frees of the block that the finding is about, without those of earlier blocks at its
/// place.
pub(super) fn of_block<'a>(steps: &'a [Step], finding: &Finding) -> Vec<&'a Event> {
    if let FindingKind::TripleFault { tables } = finding.kind {
        return of_tables(steps, tables).into_iter().map(|(_, event)| event).collect();
    }
    let near = nearest(steps, finding).map(|(_, event, _)| event);
    let is_of_bug = |event: &&Event| {
        let (addr, size) = match event.action {
            Action::Alloc { addr, size, .. } => (addr, Some(size)),
            Action::Free { addr, size, .. } => (addr, size),
            _ => return false,
        };
        let is = |block: &Block| block.addr == addr && size.is_none_or(|size| size == block.size);
        match &finding.kind {
            FindingKind::UseAfterFree { block, .. } | FindingKind::DoubleFree { block } => is(block),
            FindingKind::DoubleAllocation { block, within } => is(block) || is(within),
            FindingKind::InvalidFree { addr: bad, within } => {
                let close = near.is_some_and(|near| std::ptr::eq(near, *event));
                *bad == addr || within.as_ref().is_some_and(is) || close
            }
            FindingKind::Leak { blocks, .. } => size.is_some() && blocks.iter().any(is),
            _ => false,
        }
    };
    let allocates = |event: &&Event| matches!(event.action, Action::Alloc { .. });
    let mut found: Vec<_> = steps.iter().flat_map(|step| &step.events).filter(is_of_bug).collect();
    match finding.kind {
        // What was lost is what was made last at each address.
        FindingKind::Leak { .. } => {
            let last: BTreeMap<_, _> = found.iter().filter(|event| allocates(event)).map(made_at).collect();
            found.retain(|event| last.values().any(|last| std::ptr::eq(*last, *event)));
        }
        _ => {
            let twice = matches!(finding.kind, FindingKind::DoubleAllocation { .. });
            let last = found.iter().rposition(allocates);
            let before = last.filter(|_| twice).and_then(|last| found[..last].iter().rposition(allocates));
            if let Some(made) = before.or(last) {
                found.drain(..made);
            }
        }
    }
    found
}

/// What happened to the frame with the page tables since a thread freed it: if possible another thread than
/// the one that had it last.
fn of_tables(steps: &[Step], tables: PhysAddr) -> Vec<(ThreadId, &Event)> {
    let all = steps.iter().flat_map(Step::occurrences).filter_map(|(thread, what)| match what {
        Occurrence::Event(event) => match event.action {
            Action::Alloc { phys, .. } | Action::Free { phys, .. } => {
                (phys.page() == tables).then_some((thread, event))
            }
            _ => None,
        },
        Occurrence::Access(_) => None,
    });
    let mut all: Vec<_> = all.collect();
    let frees = |event: &Event| matches!(event.action, Action::Free { .. });
    let last = all.last().map(|(thread, _)| *thread);
    let by_another = all.iter().rposition(|(thread, event)| Some(*thread) != last && frees(event));
    let first = by_another.or_else(|| all.iter().rposition(|(_, event)| frees(event)));
    all.drain(..first.unwrap_or(all.len()));
    all
}

fn made_at<'a>(event: &&'a Event) -> (Option<VirtAddr>, &'a Event) {
    let addr = match event.action {
        Action::Alloc { addr, .. } => Some(addr),
        _ => None,
    };
    (addr, event)
}

/// The allocation whose block is nearest to the address that was freed and is no block, if one is near; with
/// the distance, and whether the address lies before its start or behind its end.
fn nearest<'a>(steps: &'a [Step], finding: &Finding) -> Option<(ThreadId, &'a Event, (u64, bool))> {
    let FindingKind::InvalidFree { addr: bad, within: None } = finding.kind else { return None };
    let all = steps.iter().flat_map(Step::occurrences).filter_map(|(thread, what)| {
        let Occurrence::Event(event) = what else { return None };
        let Action::Alloc { addr, size, .. } = event.action else { return None };
        let end = addr.0.saturating_add(size);
        let off = if bad < addr { (addr.0 - bad.0, true) } else { (bad.0.saturating_sub(end), false) };
        (off.0 <= NEAR_BYTES).then_some((thread, event, off))
    });
    // Among several at the same distance, the last.
    all.min_by_key(|(_, event, off)| (off.0, std::cmp::Reverse(event.accesses_before)))
}

impl Composer<'_> {
    /// Who freed the page tables that are in use, and what became of them.
    pub(super) fn tables(&self) -> String {
        let FindingKind::TripleFault { tables } = self.finding.kind else { return String::new() };
        let changes = of_tables(self.steps, tables).into_iter().map(|(thread, event)| {
            let verb = match event.action {
                Action::Alloc { .. } => "allocated again",
                _ => "freed",
            };
            format!("{verb} by {thread} in {}", self.library.event_place(event).in_words())
        });
        let changes: Vec<String> = changes.collect();
        match changes.is_empty() {
            true => String::new(),
            false => format!(" The page tables in use, at {tables}, were {}.", words::list(&changes)),
        }
    }

    /// A phrase that says near which block the address lies that was freed and is no block.
    pub(super) fn near(&self) -> Option<String> {
        let (thread, event, (off, before)) = nearest(self.steps, self.finding)?;
        let Action::Alloc { size, .. } = event.action else { return None };
        let side = if before { "before" } else { "behind" };
        let place = self.library.event_place(event).in_words();
        let (off, size) = (words::bytes(off), words::bytes(size));
        Some(format!("{off} {side} the block of {size} that {thread} allocated in {place}"))
    }
}

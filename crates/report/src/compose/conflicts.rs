//! Accesses of two threads to the same memory, whose order matters: what met whom.

use super::{Composer, Draft, SightedAccess};
use crate::fold::Ranks;
use crate::story::{Conflict, EndKind, Note, NoteKind, Place, Row, SideView, Story, Touch};
use crate::words;
use detect::{Finding, FindingKind, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use trace::{Access, Occurrence, Step, ThreadId, VirtAddr};

/// How many conflicts are shown; further ones are counted.
const CONFLICTS_MAX: usize = 500;
/// With this many conflicts or fewer each is worth a line in its rows.
const CONFLICTS_FEW: usize = 6;
/// How many variables that were read too early a sentence names.
const STALE_MAX: usize = 3;
/// How many variables that were looked at too early are reported, in a sentence each.
const PREMATURE_MAX: usize = 2;
/// Bytes in the words that accesses are looked up by.
const WORD: u64 = 8;

/// Forgets what is known of a block of memory.
fn forget<T>(known: &mut BTreeMap<u64, T>, block: &Range<u64>) {
    let words: Vec<u64> =
        known.range(block.start / WORD..block.end.div_ceil(WORD)).map(|(word, _)| *word).collect();
    for word in words {
        known.remove(&word);
    }
}

/// Memory without a name, given the sizes of accesses to it by their addresses.
fn extent_in_words(extent: &BTreeMap<VirtAddr, u32>) -> String {
    let bytes: u64 = extent.values().map(|size| u64::from(*size)).sum();
    let ends = extent.first_key_value().zip(extent.last_key_value());
    let Some(((first, _), (last, size))) = ends.filter(|_| extent.len() > 1) else {
        let at = extent.keys().next().copied().unwrap_or_default();
        return format!("{} at {at}", words::bytes(bytes));
    };
    let is_whole = last.0 + u64::from(*size) - first.0 == bytes;
    let (bytes, end) = (words::bytes(bytes), VirtAddr(last.0 + u64::from(*size)));
    if is_whole { format!("{bytes} from {first} on") } else { format!("{bytes} between {first} and {end}") }
}

/// Whether `what` is the object or a member of it: `lock.owner of struct task` is part of `lock of struct
/// task`.
fn is_part(what: &str, whole: &str) -> bool {
    let (path, of) = whole.split_once(" of ").unwrap_or((whole, ""));
    let (member, of_what) = what.split_once(" of ").unwrap_or((what, ""));
    of == of_what && member.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Composer<'_> {
    /// Each access with the latest conflicting one of another thread; one entry for each pair of rows and
    /// name.
    pub(super) fn conflicts(&self, drafts: &[Draft<'_>], sides: &[SideView]) -> Vec<Conflict> {
        let library = self.library;
        // By word: the last access of each thread and kind, and its row.
        let mut last: BTreeMap<u64, Vec<(usize, usize, SightedAccess<'_>)>> = BTreeMap::new();
        let mut births: BTreeMap<ThreadId, (usize, usize)> = BTreeMap::new();
        let mut found: BTreeMap<(bool, usize, usize, String), Conflict> = BTreeMap::new();
        let mut extents: BTreeMap<(bool, usize, usize, String), BTreeMap<VirtAddr, u32>> = BTreeMap::new();
        let touch = |seen: &SightedAccess<'_>| {
            let stack = library.places(&library.stack_at(seen));
            Touch {
                verb: seen.access.kind.verb(),
                atomic: seen.access.atomic,
                place: stack.first().cloned().unwrap_or_default(),
                stack,
            }
        };
        for (row, draft) in drafts.iter().enumerate() {
            births.extend(draft.created.iter().map(|(before, child)| (*child, (row, *before))));
            let birth = births.get(&draft.thread).copied();
            let mut allocated = draft.allocated.iter().peekable();
            for (at, seen) in draft.accesses.iter().enumerate() {
                let access = seen.access;
                while let Some((_, block)) = allocated.next_if(|(before, _)| *before <= at) {
                    forget(&mut last, block);
                }
                let words =
                    access.phys.0 / 8..=(access.phys.0 + u64::from(access.size.clamp(1, 4096)) - 1) / 8;
                for word in words {
                    let known = last.entry(word).or_default();
                    let other = |(earlier, place, before): &&(usize, usize, SightedAccess<'_>)| {
                        drafts[*earlier].thread != draft.thread
                            && birth.is_none_or(|birth| (*earlier, *place) >= birth)
                            && before.access.conflicts(access)
                    };
                    if let Some((earlier, _, before)) =
                        known.iter().filter(other).max_by_key(|(row, ..)| *row)
                    {
                        let bug = self.concerns(access);
                        // What has no name is told by the two instructions: they may have gone through a
                        // whole buffer.
                        let known = library.known_data(seen);
                        let name =
                            known.clone().unwrap_or_else(|| format!("{} {}", before.access.pc, access.pc));
                        let key = (!bug, *earlier, row, name);
                        if known.is_none() {
                            let extent = extents.entry(key.clone()).or_default();
                            extent.insert(access.addr, access.size);
                        }
                        found.entry(key).or_insert_with(|| Conflict {
                            rows: (*earlier, row),
                            what: known.unwrap_or_default(),
                            earlier: touch(before),
                            later: touch(seen),
                            bug,
                            // What the kernel does for a program under test is no part of the story.
                            overwritten: !library.context.program
                                && seen.sighting.is_some_and(|sighting| sighting.overwritten),
                        });
                    }
                    let same = |(earlier, _, before): &(usize, usize, SightedAccess<'_>)| {
                        let before = before.access;
                        drafts[*earlier].thread == draft.thread
                            && (before.kind, before.phys, before.size)
                                == (access.kind, access.phys, access.size)
                    };
                    known.retain(|entry| !same(entry));
                    known.push((row, at, *seen));
                }
            }
            allocated.for_each(|(_, block)| forget(&mut last, block));
        }
        for (key, extent) in extents {
            if let Some(conflict) = found.get_mut(&key) {
                conflict.what = extent_in_words(&extent);
            }
        }
        if let Some((key, conflict)) = self.freed_then_used(drafts, sides) {
            found.insert(key, conflict);
        }
        // What two threads do to a lock is what it is for.
        let locks = self.lock_names();
        let of_lock = |what: &str| locks.iter().any(|lock| is_part(what, lock));
        found.retain(|(other, _, _, what), _| !*other || !of_lock(what));
        found.into_values().collect()
    }

    fn lock_names(&self) -> BTreeSet<String> {
        let locks = self.steps.iter().flat_map(|step| &step.events).filter_map(super::library::lock_of);
        locks.filter_map(|lock| self.library.resolve.lock(VirtAddr(lock.0))).collect()
    }

    /// Adds conflicts between a free, which writes the whole block, and the use that follows it.
    fn freed_then_used(
        &self,
        drafts: &[Draft<'_>],
        sides: &[SideView],
    ) -> Option<((bool, usize, usize, String), Conflict)> {
        let FindingKind::UseAfterFree { access, .. } = &self.finding.kind else { return None };
        let side = |role: fn(&Role) -> bool| {
            let at = self.finding.sides.iter().position(|side| role(&side.role))?;
            Some((sides[at].row?, &sides[at]))
        };
        let (freed, freed_at) = side(|role| *role == Role::Freed)?;
        let (used, used_at) = side(|role| matches!(role, Role::Accessed(_)))?;
        let what = self.library.data(&self.bad_access(drafts)?);
        let touch = |verb, side: &SideView| Touch {
            verb,
            atomic: false,
            place: side.place.clone(),
            stack: side.stack.clone(),
        };
        let conflict = Conflict {
            rows: (freed, used),
            what: what.clone(),
            earlier: touch("frees", freed_at),
            later: touch(access.kind.verb(), used_at),
            bug: true,
            overwritten: false,
        };
        (freed < used).then_some(((false, freed, used, what), conflict))
    }

    /// What a thread had just read, in the line where it gave up or loops, and which thread had written it;
    /// these conflicts are marked as the bug's.
    pub(super) fn noticed(
        &self,
        rows: &[Row],
        columns: &[ThreadId],
        sides: &[SideView],
        conflicts: &mut [Conflict],
    ) -> (String, Vec<usize>) {
        let spots: Vec<(usize, &Place)> = match self.finding.kind {
            FindingKind::Panic { .. }
            | FindingKind::Fault { .. }
            | FindingKind::TightLoop { .. }
            | FindingKind::EndlessPoints { .. } => {
                rows.last().map(|last| (rows.len() - 1, &last.to)).into_iter().collect()
            }
            FindingKind::LostWakeup { .. } => {
                let loops = sides.iter().filter(|side| side.loops);
                loops.filter_map(|side| Some((side.row?, &side.place))).collect()
            }
            _ => Vec::new(),
        };
        let at_spot = |conflict: &Conflict| {
            let there = |spot: &Place, place: &Place| {
                spot.line.is_some() && (&place.file, place.line) == (&spot.file, spot.line)
            };
            spots.iter().any(|&(row, spot)| {
                conflict.rows.1 == row && conflict.later.stack.iter().any(|place| there(spot, place))
            })
        };
        let (mut sentences, mut which) = (Vec::new(), Vec::new());
        for (at, conflict) in conflicts.iter_mut().enumerate() {
            if !at_spot(conflict) || conflict.later.verb == "writes" || sentences.len() >= STALE_MAX {
                continue;
            }
            let what = &conflict.what;
            if conflict.overwritten {
                sentences.push(format!("{what}, which the scheduler wrote last"));
                continue;
            }
            which.push(at);
            conflict.bug = true;
            sentences.push(format!(
                "{what}, which {} {} in row {}, {}",
                columns[rows[conflict.rows.0].column],
                conflict.earlier.verb,
                conflict.rows.0 + 1,
                conflict.earlier.in_words()
            ));
        }
        let sentences = if sentences.is_empty() {
            String::new()
        } else {
            format!(" It reads {}.", words::list(&sentences))
        };
        (sentences, which)
    }

    /// The other sides where one thread alone ran into the bug: which threads wrote what it read, or changed
    /// what it had read.
    pub(super) fn others<'c>(
        &self,
        rows: &[Row],
        columns: &[ThreadId],
        conflicts: impl Iterator<Item = &'c Conflict>,
    ) -> Vec<SideView> {
        let alone = matches!(
            self.finding.kind,
            FindingKind::Panic { .. }
                | FindingKind::Fault { .. }
                | FindingKind::TightLoop { .. }
                | FindingKind::EndlessPoints { .. }
                | FindingKind::CheckFailed { .. }
                | FindingKind::Console { .. }
        );
        let mut others: Vec<SideView> = Vec::new();
        for conflict in conflicts.filter(|_| alone) {
            let both = [(conflict.rows.0, &conflict.earlier), (conflict.rows.1, &conflict.later)];
            // Whoever ran into it and read is known already, unless nobody is.
            let sentences = |touch: &Touch| touch.verb == "reads" && !self.finding.sides.is_empty();
            for (row, touch) in both.into_iter().filter(|(_, touch)| !sentences(touch)) {
                let side = SideView {
                    title: format!("{} {} {}", columns[rows[row].column], touch.verb, conflict.what),
                    column: Some(rows[row].column),
                    row: Some(row),
                    place: touch.place.clone(),
                    stack: touch.stack.clone(),
                    scheduler_frames: 0,
                    locks: None,
                    waits_for: None,
                    loops: false,
                };
                let same = |other: &SideView| (other.row, &other.stack) == (side.row, &side.stack);
                if !others.iter().any(same) {
                    others.push(side);
                }
            }
        }
        others
    }

    /// What other threads had looked at before a waiting thread wrote it on its way to sleep; these conflicts
    /// are marked as the bug's.
    pub(super) fn premature(&self, rows: &[Row], columns: &[ThreadId], conflicts: &mut [Conflict]) -> String {
        let FindingKind::LostWakeup { waiting } = &self.finding.kind else { return String::new() };
        let slept = |thread: ThreadId| rows.iter().rposition(|row| columns[row.column] == thread);
        let slept: BTreeSet<usize> = waiting.iter().filter_map(|wait| slept(wait.thread)).collect();
        let mut sentences = Vec::new();
        for conflict in conflicts.iter_mut().rev() {
            let (looked, wrote) = conflict.rows;
            let early = conflict.earlier.verb == "reads" && conflict.later.verb == "writes";
            // What was read while somebody stood preempted is where the wakeup may have been lost.
            let in_between = rows[..looked]
                .iter()
                .any(|row| row.column == rows[wrote].column && row.end.kind == EndKind::Preempted);
            if early && in_between && slept.contains(&wrote) && sentences.len() < PREMATURE_MAX {
                conflict.bug = true;
                let (what, at) = (&conflict.what, conflict.earlier.in_words());
                let who = columns[rows[wrote].column];
                sentences.push(format!(
                    " Row {} reads {what} in {at}, but {who} writes it only in row {}.",
                    looked + 1,
                    wrote + 1
                ));
            }
        }
        sentences.concat()
    }

    /// Whether the finding is about the memory that `access` touches.
    pub(super) fn concerns(&self, access: &Access) -> bool {
        let within = |start: VirtAddr, size: u64| {
            access.addr.0 < start.0.saturating_add(size) && start.0 < access.addr.0 + u64::from(access.size)
        };
        match &self.finding.kind {
            FindingKind::UseAfterFree { access: bad, .. }
            | FindingKind::AllocatorReentered { access: bad } => within(bad.addr, u64::from(bad.size)),
            FindingKind::DoubleFree { block } | FindingKind::DoubleAllocation { block, .. } => {
                within(block.addr, block.size)
            }
            _ => false,
        }
    }
}

/// Adds notes about the conflicts to the rows that they join: those about the bug, and all when there are
/// few.
pub(super) fn mark(rows: &mut [Row], conflicts: &[Conflict]) {
    for conflict in conflicts.iter().filter(|conflict| conflict.bug || conflicts.len() <= CONFLICTS_FEW) {
        let (a, b) = conflict.rows;
        for (row, other, mine, theirs) in
            [(a, b, &conflict.earlier, &conflict.later), (b, a, &conflict.later, &conflict.earlier)]
        {
            let done = match theirs.verb {
                "reads" => "read",
                "writes" => "written",
                "frees" => "freed",
                _ => "updated",
            };
            let text = format!("{} {}, {done} in row {}", mine.verb, conflict.what, other + 1);
            let note = Note { kind: NoteKind::Conflict, text, place: mine.place.clone(), major: true };
            if !rows[row].notes.contains(&note) {
                rows[row].notes.push(note);
            }
        }
    }
}

/// Leaves out conflicts beyond so many, those that say least.
pub(super) fn leave_out(story: &mut Story) {
    let left_out = story.conflicts.len().saturating_sub(CONFLICTS_MAX);
    if left_out == 0 {
        return;
    }
    let ranks = Ranks::of(story);
    let mut all = std::mem::take(&mut story.conflicts);
    all.sort_by_key(|conflict| ranks.rank(conflict));
    all.truncate(CONFLICTS_MAX);
    all.sort_by_key(|conflict| (!conflict.bug, conflict.rows));
    (story.conflicts, story.conflicts_left_out) = (all, left_out);
}

/// A sentence about what the thread preempted in `row` had read and what changed before it went on; these
/// conflicts are marked as the bug's.
pub(super) fn stale(
    row: usize,
    rows: &[Row],
    threads: &[ThreadId],
    conflicts: &mut [Conflict],
) -> (String, Vec<usize>) {
    // Where the kernel goes over to others by itself, the thread has another row before they come in.
    let own = |later: &&Row| later.column == rows[row].column;
    let others = row + rows[row..].iter().take_while(own).count();
    let resumed = rows[others..].iter().position(|later| own(&later)).map_or(rows.len(), |at| others + at);
    let changed = conflicts.iter_mut().enumerate().filter(|(_, conflict)| {
        conflict.rows.0 == row && conflict.earlier.verb == "reads" && conflict.rows.1 < resumed
    });
    let (mut whats, mut by, mut which) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (at, conflict) in changed {
        // Memory without a name is known by who reads it.
        let what = match conflict.what.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("{} in {}", conflict.what, conflict.earlier.in_words()),
            false => conflict.what.clone(),
        };
        if !whats.contains(&what) && whats.len() < STALE_MAX {
            whats.push(what);
            which.push(at);
            by.insert(conflict.rows.1 + 1);
            conflict.bug = true;
        }
    }
    if whats.is_empty() {
        return Default::default();
    }
    let by: Vec<String> = by.iter().map(usize::to_string).collect();
    let (noun, verb) = if by.len() == 1 { ("row", "changes") } else { ("rows", "change") };
    let (whats, by) = (words::list(&whats), words::list(&by));
    let sentences =
        format!(" By then {} has read {whats}, which {noun} {by} {verb}.", threads[rows[row].column]);
    (sentences, which)
}

/// Instructions whose accesses are worth seeing while they happen: those that touch what two threads share,
/// what has no name of its own, and what the finding is about.
#[must_use]
pub fn worth_seeing(steps: &[Step], finding: &Finding, named: &dyn Fn(VirtAddr) -> bool) -> Vec<VirtAddr> {
    let mut by_word: BTreeMap<u64, (BTreeSet<ThreadId>, bool)> = BTreeMap::new();
    let words = |access: &Access| {
        let bytes = u64::from(access.size.clamp(1, 4096));
        access.phys.0 / WORD..=(access.phys.0 + bytes - 1) / WORD
    };
    let accesses = || {
        steps.iter().flat_map(Step::occurrences).filter_map(|(thread, what)| match what {
            Occurrence::Access(access) => Some((thread, access)),
            Occurrence::Event(_) => None,
        })
    };
    for (thread, access) in accesses() {
        for word in words(access) {
            let (threads, written) = by_word.entry(word).or_default();
            threads.insert(thread);
            *written |= access.kind.writes();
        }
    }
    let shared = |access: &Access| words(access).any(|word| by_word[&word].1 && by_word[&word].0.len() > 1);
    let of_interest = accesses().filter(|(_, access)| shared(access) || !named(access.addr));
    let pcs = of_interest.map(|(_, access)| access.pc);
    let pcs: BTreeSet<VirtAddr> = pcs.chain(finding.sides.iter().map(|side| side.pc)).collect();
    pcs.into_iter().collect()
}

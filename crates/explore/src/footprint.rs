//! What one transition touched, in a form that makes "do these two conflict?" fast.
//!
//! A footprint holds physical memory byte by byte ([`Touched`]), with Bloom filters over its chunks that
//! answer most questions before bytes are looked at.
//!
//! Things that are no memory get chunks of their own outside of it: a lock (taking and releasing it write it,
//! whether or not the subject logs the lock's own bytes) and an actor (whoever runs in a step writes its own
//! progress, so that a step in which the kernel went over to a second thread depends on that thread's other
//! steps).
//!
//! Two things that look like writes are none, because a step is taken as a whole:
//! - A lock that a thread takes and gives back within one step is free before and after it. Such a step reads
//!   the lock, and so does one that only asks for it, where the answer is of the next step. Of two threads
//!   whose critical sections have nothing but the lock in common, one order is tried. What is not so short
//!   writes the lock: to keep it, to wait for it, to hand it over, to end with it.
//! - Where a thread has to leave the processor, because it waits or has ended, its kernel goes over to another
//!   one, up to where a tick can be taken. If that one did nothing there that anybody could see, it has made
//!   no progress: had it been chosen by ticks it would have begun with the same. Where the first one could
//!   have gone on, a step ends because there was somebody to go over to, so that this counts.
//!
//! The state of a processor has a chunk of its own, too, which every step on that processor reads. Two things
//! write it. One is a store that goes into the processor's store buffer: what a handler stores and what the
//! interrupted code does are in order. The other is a step after which something else cannot run on that
//! processor: one that leaves interrupts off, and one of a handler that does not take and end its interrupt
//! within the step. A handler of one step depends on its processor's other steps only by what both touch.
//! Another chunk says whether a processor waits for an interrupt: a step that ends there writes it, and all
//! steps of its interrupts read it, because an interrupt that comes too early does not end the wait. Another
//! one says how far a store buffer has drained: the buffer's steps write it, and fences read it. A store that
//! went into a buffer is no write yet, even where the step tells its access; that it is drained is one. An
//! interrupt whose step went over to what it interrupted ([`Action::Switch`]) writes the progress of its
//! processor.
//!
//! Choosing a thread makes the scheduler work on its queues, which are left out of account as long as the
//! kernel guards them. A step that touched them unguarded (`Exposed`) conflicts with every other one.
//!
//! `Free` and `Alloc` write their whole block: an access on the other side of either is another matter even
//! if no byte of it is touched by anybody else (Blum 2012, 5.4.2).

use serde::{Deserialize, Serialize};
use trace::{AccessKind, Action, Actor, ActorSet, Event, LockId, Step, ThreadId, Touched, Touching};

const SPACE_BITS: u32 = 60;
const LOCKS: u64 = 1 << SPACE_BITS;
const ACTORS: u64 = 2 << SPACE_BITS;
const PROCESSORS: u64 = 3 << SPACE_BITS;
const HALTS: u64 = 4 << SPACE_BITS;
const DRAINS: u64 = 5 << SPACE_BITS;

const BLOOM_WORDS: usize = 32;
/// Footprints with more chunks than this are compared roughly first.
const CHUNKS_COMPARED: usize = 16;

/// A set of numbers that may answer "yes" by mistake.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Bloom([u64; BLOOM_WORDS]);

impl Bloom {
    fn insert(&mut self, number: u64) {
        let bit = hash(number) as usize % (64 * BLOOM_WORDS);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |common, (a, b)| common | a & b) != 0
    }
}

/// What was touched, and what of that was written, roughly.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Rough {
    touched: Bloom,
    written: Bloom,
}

impl Rough {
    fn of(bytes: &Touched) -> Self {
        let mut rough = Self::default();
        for (number, writes) in bytes.blocks() {
            rough.touched.insert(number);
            if writes {
                rough.written.insert(number);
            }
        }
        rough
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.written.meets(&other.touched) || self.touched.meets(&other.written)
    }
}

/// Whether the order of critical sections matters that have nothing but their lock in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LockOrder {
    /// It changes nothing that any thread can see.
    #[default]
    OfWhatTheyGuard,
    /// It does to an observer, who takes every lock and unlock as an order between threads: what races by
    /// that measure in the one order may not in the other.
    Matters,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Footprint {
    bytes: Touched,
    /// A footprint of few chunks has none: to compare those takes no longer.
    rough: Option<Box<Rough>>,
    /// Whether the order with respect to any other step can matter: the step ended the execution, so that
    /// nobody could do anything after it, or it was exposed to the scheduler.
    whole: bool,
}

const fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

impl Footprint {
    #[must_use]
    pub fn of(step: &Step) -> Self {
        let mut touching = Touching::new(step.accesses.len() + step.events.len() + 1);
        Self::made(step, LockOrder::default(), &mut touching)
    }

    /// The same, for whoever makes many: `touching` is empty before and after.
    #[must_use]
    pub fn made(step: &Step, locks: LockOrder, touching: &mut Touching) -> Self {
        let mut whole = false;
        let actor = step.choice.actor;
        touch_actor(touching, actor);
        if actor.is_buffer() {
            touching.range(DRAINS | number(actor), 1, true);
        }
        let runs_on = actor.cpu().filter(|_| !actor.is_buffer());
        if let Some(cpu) = runs_on {
            let is_interrupt = matches!(actor, Actor::Interrupt { .. });
            let keeps = if is_interrupt { !is_whole_handler(step) } else { leaves_interrupts_off(step) };
            touching.range(PROCESSORS | u64::from(cpu.0), 1, keeps);
            if is_interrupt {
                touching.range(HALTS | u64::from(cpu.0), 1, false);
            }
        }
        let mut buffered = stores_held_back(step).peekable();
        for (at, access) in step.accesses.iter().enumerate() {
            let (start, size) = (access.phys.0, u64::from(access.size));
            if buffered.next_if_eq(&at).is_none() {
                touching.range(start, size, access.kind.writes());
            } else if access.kind != AccessKind::Write {
                touching.range(start, size, false);
            }
        }
        touch_locks(touching, step, locks);
        let arrival = arrival(step);
        for (at, event) in step.events.iter().enumerate() {
            match event.action {
                Action::Switch { to } => {
                    let on_the_way = arrival.is_some_and(|arrival| at <= arrival);
                    let handed_over = had_to_go(step, at) && !shows(step, at);
                    if !on_the_way && !handed_over {
                        touch_actor(touching, to.into());
                    }
                    if let Some(cpu) = runs_on {
                        touch_actor(touching, cpu.into());
                    }
                }
                Action::Buffered { .. } => {
                    if let Some(cpu) = runs_on {
                        touching.range(PROCESSORS | u64::from(cpu.0), 1, true);
                    }
                }
                Action::Fence => {
                    if let Some(buffer) = actor.buffer() {
                        touching.range(DRAINS | number(buffer), 1, false);
                    }
                }
                Action::Drained { phys, size, .. } => touching.range(phys.0, u64::from(size), true),
                Action::Halt => {
                    if let Some(cpu) = runs_on {
                        touching.range(HALTS | u64::from(cpu.0), 1, true);
                    }
                }
                Action::Exposed => whole = true,
                Action::Depends { phys, size, writes } => touching.range(phys.0, size, writes),
                Action::Free { phys, size, .. } => touching.range(phys.0, size.unwrap_or(1).max(1), true),
                Action::Alloc { phys, size, .. } => touching.range(phys.0, size.max(1), true),
                _ => {}
            }
        }
        Self::new(touching.finish(), whole)
    }

    fn new(bytes: Touched, whole: bool) -> Self {
        let rough = (bytes.len() > CHUNKS_COMPARED).then(|| Box::new(Rough::of(&bytes)));
        Self { bytes, rough, whole }
    }

    /// The footprint of several steps taken as one.
    #[must_use]
    pub fn union<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let mut touching = Touching::new(16);
        let mut whole = false;
        for part in parts {
            whole |= part.whole;
            touching.all(&part.bytes);
        }
        Self::new(touching.finish(), whole)
    }

    /// The footprint of this step if it ended the execution and therefore conflicts with everything.
    #[must_use]
    pub fn ending(&self) -> Self {
        Self { whole: true, ..self.clone() }
    }

    /// This footprint, with these actors touched as well.
    #[must_use]
    pub fn with_actors(&self, actors: &ActorSet) -> Self {
        let mut touching = Touching::new(actors.len());
        touching.all(&self.bytes);
        actors.iter().for_each(|actor| touch_actor(&mut touching, actor));
        Self::new(touching.finish(), self.whole)
    }

    /// Whether the order of the two can matter.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        if self.whole || other.whole {
            return true;
        }
        let apart = match (&self.rough, &other.rough) {
            (Some(mine), Some(theirs)) => !mine.conflicts(theirs),
            _ => false,
        };
        !apart && self.bytes.conflicts(&other.bytes)
    }
}

/// Whether the step took an interrupt and handled it to the end.
fn is_whole_handler(step: &Step) -> bool {
    let has = |wanted: fn(&Action) -> bool| step.events.iter().any(|event| wanted(&event.action));
    has(|action| matches!(action, Action::Interrupt { .. }))
        && has(|action| matches!(action, Action::InterruptReturn))
}

fn leaves_interrupts_off(step: &Step) -> bool {
    let mut events = step.events.iter().rev();
    let last = events.find(|e| matches!(e.action, Action::InterruptsOff | Action::InterruptsOn));
    last.is_some_and(|event| matches!(event.action, Action::InterruptsOff))
}

/// The event at which the kernel came to the thread that was chosen, if on the way there nobody did anything
/// that anybody could see: whom ticks brought before it has made no progress.
fn arrival(step: &Step) -> Option<usize> {
    let chosen = step.choice.thread()?;
    let goes_over = |event: &Event| matches!(event.action, Action::Switch { .. });
    let quiet = |event: &&Event| event.accesses_before == 0 && (goes_over(event) || !event.action.shows());
    let mut way = step.events.iter().take_while(quiet);
    way.position(|event| event.action == Action::Switch { to: chosen })
}

/// Whether the thread from which the kernel went over to another one at event `at` could not go on.
fn had_to_go(step: &Step, at: usize) -> bool {
    let earlier = step.events[..at].iter().rev();
    let own =
        earlier.map(|event| &event.action).take_while(|action| !matches!(action, Action::Switch { .. }));
    let last = own
        .into_iter()
        .find(|action| matches!(action, Action::Block { .. } | Action::Exit | Action::Wake { .. }));
    matches!(last, Some(Action::Block { .. } | Action::Exit))
}

/// Whether anybody could tell that the thread to which the kernel went over at event `at` ran within the step.
fn shows(step: &Step, at: usize) -> bool {
    let later = &step.events[at + 1..];
    let next = later.iter().position(|event| matches!(event.action, Action::Switch { .. }));
    let accesses = next.map_or(step.accesses.len(), |next| later[next].accesses_before);
    let own = &later[..next.unwrap_or(later.len())];
    accesses > step.events[at].accesses_before || own.iter().any(|event| event.action.shows())
}

/// Touches the locks that a step had to do with. One that its thread took and gave back within the step was
/// free before it and is free after it, so that the step neither keeps anybody else out nor changes anything
/// for whoever does the same: it reads the lock, and so does asking for it. All else writes it.
fn touch_locks(touching: &mut Touching, step: &Step, locks: LockOrder) {
    let matters = locks == LockOrder::Matters;
    let mut runs = step.thread;
    let mut taken: Vec<(LockId, ThreadId)> = Vec::new();
    for event in &step.events {
        match event.action {
            Action::Switch { to } => runs = to,
            Action::LockRequest { lock, .. } => touch_lock(touching, lock, matters),
            Action::Lock { lock, taking } if !taking.semaphore => taken.push((lock, runs)),
            // Who takes such a lock afterwards learns that the thread has ended.
            Action::Exit => {
                let held = taken.extract_if(.., |&mut (_, by)| by == runs);
                held.for_each(|(lock, _)| touch_lock(touching, lock, true));
            }
            Action::Unlock { lock } => match taken.iter().rposition(|&held| held == (lock, runs)) {
                Some(at) => {
                    taken.remove(at);
                    touch_lock(touching, lock, matters);
                }
                None => touch_lock(touching, lock, true),
            },
            Action::Lock { lock, .. }
            | Action::HandOff { lock, .. }
            | Action::Down { semaphore: lock }
            | Action::Up { semaphore: lock }
            | Action::Block { lock: Some(lock), .. } => touch_lock(touching, lock, true),
            _ => {}
        }
    }
    taken.iter().for_each(|&(lock, _)| touch_lock(touching, lock, true));
}

fn touch_lock(touching: &mut Touching, lock: LockId, writes: bool) {
    touching.range(LOCKS | (lock.0 & (LOCKS - 1)), 1, writes);
}

/// The accesses of a step that are stores into a buffer, ascending.
fn stores_held_back(step: &Step) -> impl Iterator<Item = usize> {
    step.events.iter().filter_map(|event| {
        let Action::Buffered { phys, size, .. } = event.action else { return None };
        let at = event.accesses_before.checked_sub(1)?;
        let access = step.accesses.get(at)?;
        let plain = access.kind.writes() && !access.atomic;
        (plain && (access.phys, access.size) == (phys, size)).then_some(at)
    })
}

fn number(actor: Actor) -> u64 {
    match actor {
        Actor::Thread(thread) => u64::from(thread.0),
        Actor::Cpu(cpu) => 1 << 32 | u64::from(cpu.0),
        Actor::Interrupt { cpu, vector } => 2 << 32 | u64::from(cpu.0) << 8 | u64::from(vector),
        Actor::Buffer(cpu) => 3 << 32 | u64::from(cpu.0),
        Actor::ThreadBuffer(thread) => 4 << 32 | u64::from(thread.0),
    }
}

fn touch_actor(touching: &mut Touching, actor: Actor) {
    touching.range(ACTORS | number(actor), 1, true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Access, Event, LockId, PhysAddr, StepEnd, Taking, ThreadId, VirtAddr};

    /// `t1 r100+4 w108+2 free200+16 lock5 to2`
    fn footprint(text: &str) -> Footprint {
        let mut words = text.split_whitespace();
        let id = |word: &str| ThreadId(word[1..].parse().unwrap());
        let by = id(words.next().unwrap());
        let mut step = Step {
            choice: by.into(),
            thread: by,
            accesses: Vec::new(),
            events: Vec::new(),
            instructions: 1,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        };
        for word in words {
            let digits = word.find(|c: char| c.is_ascii_digit()).unwrap();
            let (name, numbers) = word.split_at(digits);
            let (at, size) = numbers.split_once('+').unwrap_or((numbers, "1"));
            let (at, size): (u64, u32) = (at.parse().unwrap(), size.parse().unwrap());
            let (addr, phys) = (VirtAddr(at), PhysAddr(at));
            let kind = match name {
                "r" => Some(AccessKind::Read),
                "w" => Some(AccessKind::Write),
                _ => None,
            };
            if let Some(kind) = kind {
                step.accesses.push(Access { phys, addr, size, kind, atomic: false, pc: VirtAddr(0) });
                continue;
            }
            let action = match name {
                "free" => Action::Free { addr, phys, size: Some(u64::from(size)) },
                "alloc" => Action::Alloc { addr, phys, size: u64::from(size) },
                "lock" => Action::Lock { lock: LockId(at), taking: Taking::default() },
                "asks" => Action::LockRequest { lock: LockId(at), taking: Taking::default() },
                "unlock" => Action::Unlock { lock: LockId(at) },
                "hands" => Action::HandOff { lock: LockId(at), to: ThreadId(9) },
                "down" => Action::Down { semaphore: LockId(at) },
                "up" => Action::Up { semaphore: LockId(at) },
                "blocks" => Action::Block { lock: Some(LockId(at)), owner: None },
                "exposed" => Action::Exposed,
                "on" => Action::InterruptsOn,
                "exit" => Action::Exit,
                "wakes" => Action::Wake { thread: ThreadId(u32::try_from(at).unwrap()) },
                "to" => Action::Switch { to: ThreadId(u32::try_from(at).unwrap()) },
                _ => panic!("{name}"),
            };
            let accesses_before = step.accesses.len();
            step.events.push(Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        Footprint::of(&step)
    }

    #[test]
    fn what_conflicts_with_everything_does_so_within_a_group() {
        let (exposed, quiet) = (footprint("t1 exposed0"), footprint("t1 r1+1"));
        for group in [[&quiet, &exposed], [&exposed, &quiet]] {
            assert!(Footprint::union(group.into_iter()).conflicts(&footprint("t2 r9+1")));
        }
        assert!(!Footprint::union([&quiet, &quiet].into_iter()).conflicts(&footprint("t2 r9+1")));
    }

    #[test]
    fn conflicts() {
        for (a, b, expected) in [
            ("t1 r100+4", "t2 r100+4", false),
            ("t1 r100+4", "t2 w103+1", true),
            ("t1 w100+4", "t2 w104+4", false),
            ("t1 w100+4 w104+4", "t2 r107+1", true),
            ("t1 free200+64", "t2 r263+1", true),
            ("t1 free200+64", "t2 r264+1", false),
            ("t1 alloc200+64", "t2 r210+4", true),
            ("t1 lock5", "t2 lock5", true),
            ("t1 lock5", "t2 lock6", false),
            // Whoever asks, or takes it and gives it back, leaves a lock as it was.
            ("t1 asks5", "t2 asks5", false),
            ("t1 asks5 lock5 unlock5", "t2 asks5", false),
            ("t1 lock5 unlock5", "t2 lock5 unlock5", false),
            ("t1 lock5 unlock5 lock5", "t2 lock5 unlock5", true),
            ("t1 unlock5 lock5", "t2 lock5 unlock5", true),
            ("t1 lock5", "t2 lock5 unlock5", true),
            ("t1 lock5 unlock5", "t2 unlock5", true),
            // Another thread gave it back.
            ("t1 lock5 to3 unlock5", "t2 lock5 unlock5", true),
            ("t1 lock5 blocks5", "t2 asks5", true),
            ("t1 lock5 exit0 unlock5", "t2 lock5 unlock5", true),
            ("t1 unlock5", "t2 asks5", true),
            ("t1 hands5", "t2 asks5", true),
            ("t1 up5", "t2 down5", true),
            ("t1 up5", "t2 down6", false),
            ("t1 up5", "t2 up5", true),
            ("t1 blocks5", "t2 up5", true),
            ("t1 lock100", "t2 w100+4", false),
            ("t1 exposed0", "t2 r1+1", true),
            // Ticks brought another one first, who did nothing, or something.
            ("t1 on0 to2 on0 to1 r5+1", "t2 r1+1", false),
            ("t1 on0 to2 r5+1 to1 r5+1", "t2 r1+1", true),
            ("t1 on0 to2 lock5 to1 r5+1", "t2 r1+1", true),
            // Whoever was gone over to has made no progress that anybody could see, or has.
            ("t1 r5+1 blocks9 to2 on0", "t2 r1+1", false),
            ("t1 exit0 to2", "t2 r1+1", false),
            ("t1 blocks9 wakes1 to2", "t2 r1+1", true),
            ("t1 blocks9 to2 r5+1", "t2 r1+1", true),
            ("t1 blocks9 to2 lock5", "t2 r1+1", true),
            ("t1 blocks9 to2 on0 to3 r5+1", "t2 r1+1", false),
            ("t1 blocks9 to2 on0 to3 r5+1", "t3 r1+1", true),
            ("t1 blocks9 to2 on0 to3", "t3 r1+1", true),
            ("t1 to2", "t2 r1+1", true),
            ("t1 to2", "t3 r1+1", false),
            ("t1 free0+1048576", "t2 r70000+4", true),
        ] {
            assert_eq!(footprint(a).conflicts(&footprint(b)), expected, "{a} / {b}");
            assert_eq!(footprint(b).conflicts(&footprint(a)), expected, "{b} / {a}");
        }
    }

    /// Byte by byte against the definition, across chunks and words.
    #[test]
    fn exact_to_the_byte() {
        let mut random = crate::random::Random::new(1);
        for round in 0..2000 {
            // Small ones are compared chunk by chunk, large ones roughly first.
            let size_max = if round % 8 < 6 { 70 } else { 3000 };
            let mut ranges = Vec::new();
            let mut text = |thread: u32| {
                let mut text = format!("t{thread}");
                for _ in 0..3 {
                    let (at, size) = (400 + random.below(300 + 3 * size_max), 1 + random.below(size_max));
                    let kind = if random.below(3) == 0 { "w" } else { "r" };
                    text += &format!(" {kind}{at}+{size}");
                    ranges.push((thread, kind, at, at + size));
                }
                text
            };
            let (a, b) = (text(1), text(2));
            let expected = ranges.iter().any(|one| {
                ranges.iter().any(|two| {
                    one.0 != two.0 && (one.1 == "w" || two.1 == "w") && one.2 < two.3 && two.2 < one.3
                })
            });
            assert_eq!(footprint(&a).conflicts(&footprint(&b)), expected, "{a} / {b}");
            let whole = Footprint::union([footprint(&a), footprint("t3 r1+1")].iter());
            assert_eq!(footprint(&b).conflicts(&whole), expected, "{a} / {b}");
        }
    }
}

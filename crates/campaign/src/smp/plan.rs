//! What is explored of a test on several processors, and in which order, within one budget.
//!
//! 1. *Sweep*: executions without a preemption, in every order of the threads; then one preemption before
//!    every access to shared memory, racing ones first. What turns out to be shared on the way becomes a
//!    point, and the sweep is done again until nothing new shows.
//! 2. *Reduced*: two preemptions, then three and so on, up to the order of independent accesses.
//! 3. *By chance*: what is left of the budget, beyond that bound, with priorities that change at few places
//!    (PCT), with a priority for each step (POS), and with no rule, in turn.
//!
//! With store buffers ([`Plan::explore_store_buffers`]) there is no sweep, because a store may reach memory
//! at any moment and that takes no preemption: executions in which nobody is preempted are run without
//! buffers to learn what is shared; then come no preemption, one, two and so on, reduced, with buffers. Every
//! shared word is a point then.
//!
//! Whenever new shared memory shows, it begins again, so that what is said to be exhausted at the end is
//! exhausted at all words that are known to be shared.
//!
//! Not every shared word is a point. A word that locked instructions touch is, and one with accesses that
//! race. Accesses to any other word are ordered by what happens at those, in every execution that was run;
//! letting others in before such an access comes to the same as letting them in before the next point
//! (Musuvathi and Qadeer 2007, section 3: preempt where threads synchronise, and watch for races). To free or
//! allocate a block is to write it, so that a free that nothing orders with another's access is a race too.
//! Once what processors share with their own interrupts counts, every shared word is a point, because no race
//! says which of those matter.
//!
//! Memory is a budget like time: when the process has as much as it may, the run ends and says so.

use crate::campaign::lateness;
use crate::host::Host;
use crate::smp;
use detect::{Detectors, Race, RaceLog};
use explore::sample::{Sample, Sampler};
use explore::strategies::{Pcts, Poss, PreemptionBound, RandomWalks};
use explore::tally::Tally;
use explore::{Communication, Found, Noted, Notes, Options, Search, Sweep, Until, Workers, World};
use guest::driving::multiprocessor::{Classes, Multiprocessor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use trace::{Access, Cancelled, PhysAddr, PointSet, Schedule, Subject as _, VirtAddr, Words};

/// The most decisions of one execution.
pub const DEPTH_MAX: usize = 1 << 18;
/// Bytes of memory for clones of the machine in a search that goes back and forth.
const CLONE_BYTES_MAX: usize = 256 << 20;
/// The share of the remaining time that the reduced search may take when it begins.
const REDUCED_SHARE: f64 = 0.6;
/// How many random executions are run in one go, before it is looked what they brought.
const RANDOM_EXECUTIONS: u64 = 1024;
/// The host is asked for the memory in use whenever so many others have asked for the time.
const ASKS_OF_MEMORY: u32 = 64;

/// A part of what was explored, with a set of points that was known then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// All executions with at most one preemption.
    Sweep,
    /// All executions with at most so many preemptions, up to the order of independent accesses.
    Reduced {
        preemptions: u32,
    },
    Random,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub part: Part,
    pub words: usize,
    /// Before the accesses to how many of these words others were let in.
    pub points: usize,
    pub interleavings: u64,
    /// Whether nothing of the part was left out.
    pub exhausted: bool,
}

/// How a part ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// There is a finding, or something that cannot be run.
    Over,
    Late,
    /// Shared memory showed that was not known.
    Learned,
    Exhausted {
        /// Whether more preemptions would give more executions.
        cut: bool,
    },
    /// The part has used up its share of the time.
    Enough,
}

pub struct Plan {
    subject: Multiprocessor,
    detectors: Detectors,
    cores: usize,
    late: Cancelled,
    host: Arc<dyn Host>,
    began: Duration,
    budget: Duration,
    seed: u64,
    /// Whether what processors share with their own interrupts counts.
    pub interrupts: bool,
    /// Whether the moments of timers, and of interrupts between processors, are chosen.
    pub moments: bool,
    /// Whether store buffers are to be explored, and whether the subject has them by now.
    stores: bool,
    pub buffered: bool,
    /// The workers of the last part: what they have compiled of the guest is of use for the next.
    idle: Option<Workers<Multiprocessor, Communication>>,
    /// All that is known to be shared.
    pub words: Words,
    synchronising: Words,
    racing: Words,
    /// Every shared word is a point, whatever orders its accesses.
    every_word: bool,
    short: Arc<AtomicBool>,
    /// A linear address of each word.
    pub places: BTreeMap<PhysAddr, VirtAddr>,
    pub races: RaceLog,
    pub done: Vec<Done>,
    pub interleavings: u64,
    /// Instructions and steps that were executed for them.
    pub instructions: u64,
    pub steps: u64,
    pub classes: Arc<Classes>,
    /// The number of preemptions up to which all executions at the words known now were run.
    pub exhausted: Option<u32>,
    /// Whether nothing at all is left out at these words.
    pub complete: bool,
    pub found: Option<(Found, PointSet)>,
    pub unsupported: Option<(String, Schedule)>,
}

/// A function that is told what is going on, and how many interleavings were run.
pub type Report<'a> = &'a mut dyn FnMut(&str, u64);

impl Plan {
    /// A plan for `cores` workers that ends when the budget does, or when `memory_is_short` says so.
    pub fn new(
        subject: Multiprocessor,
        cores: usize,
        budget: Duration,
        host: Arc<dyn Host>,
        memory_is_short: Cancelled,
    ) -> Self {
        let mut subject = subject;
        let began = host.now();
        let short = Arc::new(AtomicBool::new(false));
        let late = late_or_short(lateness(&host, began + budget), memory_is_short, short.clone());
        subject.cancel_when(late.clone());
        Self {
            subject,
            detectors: smp::detectors(),
            cores,
            late,
            host,
            began,
            budget,
            seed: 1,
            interrupts: false,
            moments: false,
            stores: false,
            buffered: false,
            idle: None,
            words: Words::default(),
            synchronising: Words::default(),
            racing: Words::default(),
            every_word: false,
            short,
            places: BTreeMap::new(),
            races: RaceLog::default(),
            done: Vec::new(),
            interleavings: 0,
            instructions: 0,
            steps: 0,
            classes: Arc::default(),
            exhausted: None,
            complete: false,
            found: None,
            unsupported: None,
        }
    }

    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    fn elapsed(&self) -> Duration {
        self.host.now().saturating_sub(self.began)
    }

    /// The words before whose accesses others are let in.
    #[must_use]
    pub fn point_words(&self) -> Words {
        if self.every_word {
            return self.words.clone();
        }
        let is_point = |word: &PhysAddr| self.synchronising.contains(*word) || self.racing.contains(*word);
        self.words.iter().filter(is_point).collect()
    }

    fn points(&self) -> PointSet {
        PointSet { words: self.point_words(), ..PointSet::default() }
    }

    /// It ended because the process had no more memory.
    #[must_use]
    pub fn is_short_of_memory(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Whether an execution told of something that makes a difference to where others are let in.
    fn teaches(&self, noted: &Noted) -> bool {
        match noted {
            Noted::Word { .. } => true,
            Noted::Synchronises(word) => !self.every_word && !self.synchronising.contains(*word),
            Noted::Races(word) => {
                !self.every_word && !self.racing.contains(*word) && !self.synchronising.contains(*word)
            }
            Noted::Race(_) => false,
        }
    }

    /// The workers for the next part.
    fn workers(
        &mut self,
        points: &PointSet,
        clone_bytes_max: usize,
    ) -> Workers<Multiprocessor, Communication> {
        let mut subject = self.subject.clone();
        subject.remember_classes(self.classes.clone());
        subject.watch_words(self.words.clone());
        let observer =
            Communication::new(self.detectors.clone(), self.words.clone(), self.synchronising.clone());
        let world = World::new(subject, observer);
        match self.idle.take() {
            Some(mut workers) => {
                workers.change(&world, points, clone_bytes_max);
                workers
            }
            None => Workers::new(self.cores, &world, points, DEPTH_MAX, clone_bytes_max),
        }
    }

    /// The world in which a finding replays.
    #[must_use]
    pub fn plain_world(&self) -> World<Multiprocessor, Detectors> {
        World::new(self.subject.clone(), self.detectors.clone())
    }

    /// Explores until a bug shows, nothing is left, or the budget ends. Where the processors are exhausted
    /// and interrupts came, goes on with what processors share with their own interrupts.
    pub fn run(&mut self, report: Report<'_>) {
        self.explore(report);
        if self.complete && !self.interrupts && self.subject.counters().interrupts > 0 && !(self.late)() {
            self.watch_interrupts();
            self.explore(report);
        }
    }

    /// Makes what processors share with their own interrupts count from now on.
    pub fn watch_interrupts(&mut self) {
        self.interrupts = true;
        self.every_word = true;
        self.complete = false;
        self.exhausted = None;
        self.subject.watch_interrupts();
    }

    /// Makes the moments of timers and of interrupts between processors a choice from now on.
    pub fn choose_interrupts(&mut self) {
        self.moments = true;
        self.subject.choose_interrupts();
        self.subject.delay_interrupts();
    }

    /// Gives processors store buffers, as soon as it is known what they share. An error says why that cannot
    /// be.
    pub fn explore_store_buffers(&mut self) -> Result<(), String> {
        self.subject.clone().explore_store_buffers()?;
        self.stores = true;
        self.every_word = true;
        Ok(())
    }

    fn explore(&mut self, report: Report<'_>) {
        while self.stores && !self.buffered {
            match self.sweep(0, report) {
                Ended::Learned => {}
                Ended::Exhausted { .. } => {
                    self.buffered = self.subject.explore_store_buffers().is_ok();
                    self.classes = Arc::default();
                }
                _ => return,
            }
        }
        loop {
            if !self.buffered {
                match self.sweep(1, report) {
                    Ended::Learned => continue,
                    Ended::Exhausted { cut } => self.complete = !cut,
                    _ => return,
                }
            }
            if self.complete {
                return;
            }
            let ended = match self.deepen(report) {
                Ended::Enough => self.random(report),
                ended => ended,
            };
            if ended != Ended::Learned {
                return;
            }
        }
    }

    /// Runs executions with two preemptions, then three, and so on while its share of the time lasts; where
    /// there was no sweep, from none on.
    fn deepen(&mut self, report: Report<'_>) -> Ended {
        let left = self.budget.saturating_sub(self.elapsed());
        let end = self.elapsed() + left.mul_f64(REDUCED_SHARE);
        let first = if self.buffered { 0 } else { 2 };
        for preemptions in first.. {
            match self.reduced(preemptions, end, report) {
                Ended::Exhausted { cut: true } => {}
                Ended::Exhausted { cut: false } => {
                    self.complete = true;
                    return Ended::Late;
                }
                ended => return ended,
            }
        }
        unreachable!("bounds have no end")
    }

    fn sweep(&mut self, preemptions_max: u32, report: Report<'_>) -> Ended {
        let (points, late) = (self.points(), self.late.clone());
        let workers = self.workers(&points, 0);
        let mut sweep: Sweep<Noted> = Sweep::new(preemptions_max, Until::FirstFinding);
        while !sweep.is_over() && !late() {
            let racing = racing(sweep.notes());
            let rank = |access: &Access| u64::from(!racing.contains(&access.pc));
            sweep.round(&workers, &rank, &*late);
            // What executions without a preemption show is known before the first with one.
            if sweep.is_between() && sweep.notes().keys().any(|noted| self.teaches(noted)) {
                break;
            }
            let what = format!("{} preemptions before {} words", sweep.preemptions(), points.words.len());
            report(&what, self.interleavings + sweep.counts().interleavings);
        }
        self.idle = Some(workers);
        let learned = self.take(sweep.tally());
        let exhausted = sweep.is_exhausted() && !learned;
        if preemptions_max > 0 {
            self.exhausted = exhausted.then_some(preemptions_max).or(self.exhausted);
            self.note(Part::Sweep, sweep.counts().interleavings, exhausted);
        }
        match () {
            () if self.is_over() => Ended::Over,
            () if (self.late)() => Ended::Late,
            () if learned => Ended::Learned,
            () => Ended::Exhausted { cut: sweep.cut() },
        }
    }

    fn reduced(&mut self, preemptions: u32, end: Duration, report: Report<'_>) -> Ended {
        let (points, late) = (self.points(), self.late.clone());
        let mut workers = self.workers(&points, CLONE_BYTES_MAX);
        let options = Options { depth_max: DEPTH_MAX, ..Options::default() };
        let mut search: Search<PreemptionBound, Noted> =
            Search::new(PreemptionBound::new(preemptions), options);
        let (host, end) = (Arc::clone(&self.host), self.began + end);
        let stop = move || late() || host.now() >= end;
        let mut learned = false;
        while !search.is_over() && !stop() && !learned {
            search.round(&mut workers, &stop);
            learned = search.notes().keys().any(|noted| self.teaches(noted));
            let what = format!("{preemptions} preemptions before {} words, reduced", points.words.len());
            report(&what, self.interleavings + search.counts().interleavings);
        }
        self.idle = Some(workers);
        let learned = self.take(search.tally());
        let exhausted = search.is_exhausted() && !learned && search.counts().too_deep == 0;
        if exhausted {
            self.exhausted = Some(preemptions);
        }
        self.note(Part::Reduced { preemptions }, search.counts().interleavings, exhausted);
        match () {
            () if self.is_over() => Ended::Over,
            () if (self.late)() => Ended::Late,
            () if learned => Ended::Learned,
            () if exhausted => Ended::Exhausted { cut: search.cut() },
            () => Ended::Enough,
        }
    }

    /// Runs executions by chance, with three strategies in turn: nobody knows beforehand which one a bug is
    /// likely under.
    fn random(&mut self, report: Report<'_>) -> Ended {
        loop {
            let seed = self.seed;
            self.seed += 1;
            let ended = match seed % 3 {
                1 => self.sample(Pcts::new(seed), report),
                2 => self.sample(Poss { seed }, report),
                _ => self.sample(RandomWalks { seed }, report),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn sample<S: Sampler>(&mut self, sampler: S, report: Report<'_>) -> Option<Ended> {
        let (points, late) = (self.points(), self.late.clone());
        let mut workers = self.workers(&points, 0);
        let mut sample: Sample<_, Noted> = Sample::new(sampler, Until::FirstFinding, RANDOM_EXECUTIONS);
        let before = self.interleavings;
        sample.run(&mut workers, &*late, &mut |sample| {
            report("by chance", before + sample.tally().counts.interleavings);
        });
        self.idle = Some(workers);
        let learned = self.take(sample.tally());
        self.note(Part::Random, sample.tally().counts.interleavings, false);
        match () {
            () if self.is_over() => Some(Ended::Over),
            () if late() => Some(Ended::Late),
            () if learned => Some(Ended::Learned),
            () => None,
        }
    }

    fn is_over(&self) -> bool {
        self.found.is_some() || self.unsupported.is_some()
    }

    fn note(&mut self, part: Part, interleavings: u64, exhausted: bool) {
        let (words, points) = (self.words.len(), self.point_words().len());
        match self.done.last_mut() {
            Some(last) if last.part == part && last.words == words && part == Part::Random => {
                last.interleavings += interleavings;
            }
            _ => self.done.push(Done { part, words, points, interleavings, exhausted }),
        }
    }

    /// Takes over what a part brought; returns whether new shared memory showed.
    fn take(&mut self, tally: &Tally<Noted>) -> bool {
        let points = self.points();
        if let Some(found) = tally.found.first() {
            let mut found = found.clone();
            found.interleaving += self.interleavings;
            self.found = Some((found, points.clone()));
        } else if let Some(unsupported) = &tally.unsupported {
            self.unsupported = Some((unsupported.what.clone(), unsupported.schedule.clone()));
        }
        self.interleavings += tally.counts.interleavings;
        self.instructions += tally.counts.effort.instructions;
        self.steps += tally.counts.effort.steps;
        let learned = tally.notes.keys().any(|noted| self.teaches(noted));
        let (mut words, mut synchronising, mut racing) = (Vec::new(), Vec::new(), Vec::new());
        for noted in tally.notes.keys() {
            match noted {
                Noted::Word { word, addr } => {
                    words.push(*word);
                    self.places.entry(*word).or_insert(*addr);
                }
                Noted::Synchronises(word) => synchronising.push(*word),
                Noted::Races(word) => racing.push(*word),
                Noted::Race(race) => _ = self.races.add(race, self.done.is_empty()),
            }
        }
        for (known, more) in
            [(&mut self.words, words), (&mut self.synchronising, synchronising), (&mut self.racing, racing)]
        {
            if !more.is_empty() {
                *known = known.with(more);
            }
        }
        if learned {
            // Another set of points divides executions into other classes.
            self.classes = Arc::default();
            self.exhausted = None;
        }
        learned
    }

    /// Whether a race is on a word that is now known to be for synchronisation, so that it is none.
    #[must_use]
    pub fn on_synchronising(&self, race: &Race) -> bool {
        let near = |addr: VirtAddr| addr.0 & !7 == race.addr.0 & !7;
        self.places.iter().any(|(&word, &addr)| near(addr) && self.synchronising.contains(word))
    }
}

/// Whether the time is over, or the memory used up; the latter is kept in `short`.
fn late_or_short(late: Cancelled, memory_is_short: Cancelled, short: Arc<AtomicBool>) -> Cancelled {
    let asked = AtomicU32::new(0);
    Arc::new(move || {
        if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(ASKS_OF_MEMORY) && memory_is_short() {
            short.store(true, Ordering::Relaxed);
        }
        short.load(Ordering::Relaxed) || late()
    })
}

/// The instructions that take part in races.
fn racing(notes: &Notes<Noted>) -> BTreeSet<VirtAddr> {
    let races = notes.keys().filter_map(|noted| match noted {
        Noted::Race(race) => Some([race.first.pc, race.second.pc]),
        _ => None,
    });
    races.flatten().collect()
}

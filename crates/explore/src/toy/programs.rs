//! Many programs: all tiny ones over an alphabet, and random ones.

use super::{Handler, Instr, Kind, Program};
use crate::random::Random;
use trace::{PointRule, PointSet};

/// All programs of exactly `threads` threads with exactly `length` instructions each, up to the order of
/// threads.
pub fn all(alphabet: &[Instr], threads: usize, length: usize) -> impl Iterator<Item = Program> + '_ {
    let bodies = alphabet.len().pow(u32::try_from(length).expect("short"));
    let body = move |mut number: usize| {
        let mut thread = Vec::with_capacity(length);
        for _ in 0..length {
            thread.push(alphabet[number % alphabet.len()]);
            number /= alphabet.len();
        }
        thread
    };
    let mut next = Some(vec![0; threads]);
    std::iter::from_fn(move || {
        let numbers = next.take()?;
        // Ascending tuples: the next one raises the last number that can still grow.
        if let Some(at) = (0..threads).rev().find(|&at| numbers[at] + 1 < bodies) {
            let mut following = numbers.clone();
            let raised = following[at] + 1;
            following[at..].fill(raised);
            next = Some(following);
        }
        Some(Program { threads: numbers.into_iter().map(body).collect(), ..Program::default() })
    })
}

/// A random program of two to four threads, and points to explore it with.
pub fn random(random: &mut Random) -> (Program, PointSet) {
    let threads = [2, 2, 3, 3, 3, 4][random.below(6)];
    let length_max = [0, 0, 6, 4, 3][threads];
    let cells = 1 + random.below(3);
    let kinds = Kinds::random(random, KINDS_OF_THREADS);
    let mut program = Program::default();
    for me in 0..threads {
        let length = 1 + random.below(length_max);
        program.threads.push(body(length, kinds, cells, (me, threads), random));
    }
    (program, points(random))
}

/// A random program of two to four threads whose kernel hands the processor over, some of which wait with
/// interrupts off.
pub fn random_handing_over(random: &mut Random) -> (Program, PointSet) {
    let (mut program, points) = self::random(random);
    program.kind = Kind::HandingOver;
    let off_too = random.below(2) == 0;
    for body in &mut program.threads {
        let mut longer = Vec::new();
        for instr in body.drain(..) {
            let waits = matches!(instr, Instr::Wait(_) | Instr::Lock(_) | Instr::Spin(..) | Instr::Join(_));
            match instr {
                // It has its own way to go over.
                Instr::GoOver => longer.extend([Instr::Wait(0), Instr::Signal(0)]),
                Instr::Off | Instr::On if !off_too => {}
                _ if waits && off_too && random.below(2) == 0 => {
                    longer.extend([Instr::Off, instr, Instr::Add(0), Instr::On]);
                }
                _ => longer.push(instr),
            }
        }
        *body = longer;
    }
    (program, points)
}

/// A random program of two or three threads with store buffers.
pub fn random_with_buffers(random: &mut Random) -> (Program, PointSet) {
    let threads = [2, 2, 3][random.below(3)];
    let length_max = [0, 0, 4, 3][threads];
    let cells = 1 + random.below(2);
    let kinds = Kinds::random(random, KINDS_OF_THREADS);
    let mut program = Program { kind: Kind::BufferedThreads, ..Program::default() };
    for me in 0..threads {
        let length = 1 + random.below(length_max);
        let mut body = body(length, kinds, cells, (me, threads), random);
        // Threads of programs cannot keep others out, and whoever comes to run in another's step stores
        // nothing in it.
        let kernel = |instr: &&mut Instr| matches!(instr, Instr::GoOver | Instr::Off | Instr::On);
        body.iter_mut().filter(kernel).for_each(|instr| *instr = Instr::Fence);
        program.threads.push(body);
    }
    (program, points(random))
}

/// A random program for one to three processors, perhaps with store buffers, and up to two interrupts.
pub fn random_on_cpus(random: &mut Random) -> (Program, PointSet) {
    let cpus = [1, 2, 2, 2, 3][random.below(5)];
    let handlers = if cpus == 1 { 1 + random.below(2) } else { [0, 1, 1, 2][random.below(4)] };
    let kind = [Kind::Cpus, Kind::Buffered][random.below(2)];
    let length_max = [0, 6, 4, 2][cpus];
    let cells = 1 + random.below(2);
    let kinds = Kinds::random(random, KINDS);
    let mut program = Program { kind, ..Program::default() };
    for me in 0..cpus {
        let length = 1 + random.below(length_max);
        program.threads.push(body(length, kinds, cells, (me, cpus), random));
    }
    for vector in 0..handlers {
        let cpu = u8::try_from(random.below(cpus)).expect("few processors");
        let length = 1 + random.below(2);
        let body = body(length, kinds, cells, (cpus, cpus), random);
        program.handlers.push(Handler { cpu, vector: u8::try_from(vector).expect("few"), body });
    }
    (program, points(random))
}

fn body(length: usize, kinds: Kinds, cells: usize, of: (usize, usize), random: &mut Random) -> Vec<Instr> {
    let mut body = Vec::new();
    while body.len() < length {
        push_random(&mut body, kinds, cells, of, random);
    }
    body
}

fn points(random: &mut Random) -> PointSet {
    let mut set = PointSet::default();
    let line = |line| PointRule::Line { file: "toy".to_string(), line };
    match random.below(3) {
        0 => {
            set.rules.insert(PointRule::Everywhere);
        }
        1 => set.rules.extend([PointRule::Lock, PointRule::Unlock, line(0), line(1), PointRule::Create]),
        _ => {
            let choices =
                [PointRule::Lock, PointRule::Unlock, line(0), line(1), PointRule::Wake, PointRule::Create];
            set.rules.extend(choices.into_iter().filter(|_| random.below(2) == 0));
        }
    }
    set
}

/// Which kinds of instructions a program has. A few come often, so that rare ones meet each other.
#[derive(Clone, Copy)]
struct Kinds {
    count: usize,
    allowed: u64,
    often: [usize; 2],
}

/// Kinds of instructions, those that make sense to threads, and the first that is not allowed to all
/// programs.
const KINDS: usize = 36;
const KINDS_OF_THREADS: usize = 32;
const KINDS_SPECIAL: usize = 14;

impl Kinds {
    fn random(random: &mut Random, count: usize) -> Self {
        Self { count, allowed: random.next(), often: [random.below(count), random.below(count)] }
    }

    fn pick(self, random: &mut Random) -> usize {
        let kind = if random.below(3) == 0 { self.often[random.below(2)] } else { random.below(self.count) };
        let is_allowed = self.often.contains(&kind) || self.allowed >> kind & 1 == 1;
        if kind < KINDS_SPECIAL || is_allowed { kind } else { random.below(KINDS_SPECIAL) }
    }
}

/// Appends an instruction, or a small idiom.
fn push_random(
    thread: &mut Vec<Instr>,
    kinds: Kinds,
    cells: usize,
    (me, threads): (usize, usize),
    random: &mut Random,
) {
    let cell = |random: &mut Random| u8::try_from(random.below(cells)).expect("few cells");
    let bit = |random: &mut Random| u8::try_from(random.below(2)).expect("0 or 1");
    let other = u8::try_from(random.below(threads)).expect("few threads");
    // Made by one before it, so that somebody is there to begin with.
    let child = u8::try_from(me + 1 + random.below(threads.saturating_sub(me))).expect("few threads");
    let n = cell(random);
    match kinds.pick(random) {
        0..=2 => thread.push(Instr::Read(n)),
        3..=4 => thread.push(Instr::Write(n, 1)),
        5..=6 => thread.push(Instr::Store(n)),
        7..=8 => thread.push(Instr::Add(n)),
        9..=10 => thread.push(Instr::SkipUnless(bit(random), 1 + bit(random))),
        11..=13 => thread.push(Instr::Point(bit(random))),
        14..=15 => {
            thread.push(Instr::Lock(n));
            thread.push(if random.below(2) == 0 {
                Instr::Add(cell(random))
            } else {
                Instr::Store(cell(random))
            });
            thread.push(Instr::Unlock(n));
        }
        16 => thread.push(Instr::Lock(n)),
        17 => thread.push(Instr::Unlock(n)),
        18 => thread.push(Instr::TryLock(n)),
        19 => thread.push(Instr::Yield),
        20 => thread.push(if random.below(2) == 0 { Instr::Wait(n) } else { Instr::Signal(n) }),
        21 => thread.push(Instr::Spin(n, 1)),
        22 => thread.push(Instr::SpinEither(n, cell(random))),
        23 => thread.push(if random.below(3) > 0 { Instr::Create(child) } else { Instr::Join(other) }),
        24 => thread.push(match random.below(3) {
            0 => Instr::Free(n),
            1 => Instr::Alloc(n),
            _ => Instr::Use(n),
        }),
        25 => thread.push(Instr::Assert(bit(random))),
        26 => {
            thread.push(Instr::Off);
            thread.push(Instr::Add(cell(random)));
            thread.push(Instr::Point(0));
            thread.push(Instr::Read(cell(random)));
            thread.push(Instr::On);
        }
        27 if kinds.count == KINDS_OF_THREADS => thread.push(Instr::GoOver),
        27 => thread.push(Instr::Fence),
        28 => thread.push(Instr::End),
        29 => thread.push(Instr::Peek),
        30 => thread.push(Instr::Coin(1 + bit(random))),
        31 => thread.push(Instr::Maybe(n)),
        // A handler that sends could go on for ever.
        32 if me < threads => thread.push(Instr::Send(bit(random))),
        33 => thread.push(Instr::Halt),
        32 | 34 => thread.push(Instr::Fence),
        35 => thread.push(Instr::Poke),
        _ => {}
    }
}

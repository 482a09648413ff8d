//! Random programs, the same for the same seed.
//!
//! A program has a flavour, which decides what its threads are made of besides plain loads and stores, so
//! that every kind of step meets every other one often. Programs are small: what a thread can do in three
//! steps goes wrong as well as what it can do in thirty, and brute force comes to an end.

use crate::program::{COPY_WORDS, Op, Program, REGISTERS, Value, Waiting};

/// A generator of pseudo-random numbers (xorshift64*), of this tool's own.
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) as usize) % end
    }

    fn small(&mut self) -> u32 {
        1 + self.below(3) as u32
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    Plain,
    Atomic,
    Mutex,
    Condition,
    Semaphore,
    Yield,
    Wait,
    Copy,
    Stack,
    Rounds,
    Heap,
    Mixed,
    /// System calls, with the kernel under test: see [`crate::kernel`].
    Calls,
}

impl Flavour {
    /// Those of programs.
    pub const ALL: [Flavour; 12] = [
        Flavour::Plain,
        Flavour::Atomic,
        Flavour::Mutex,
        Flavour::Condition,
        Flavour::Semaphore,
        Flavour::Yield,
        Flavour::Wait,
        Flavour::Copy,
        Flavour::Stack,
        Flavour::Rounds,
        Flavour::Heap,
        Flavour::Mixed,
    ];

    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

const CELLS: usize = 2;
/// More yields, or rounds with a yield, than it takes for a thread to be suspected of waiting.
const MANY: u32 = 12;

struct Generator<'a> {
    random: &'a mut Random,
    flavour: Flavour,
    /// Whether a thread frees the block already, or goes through many rounds.
    spent: bool,
    semaphores: usize,
}

impl Generator<'_> {
    fn plain(&mut self) -> Op {
        let cell = self.random.below(CELLS);
        let register = self.random.below(REGISTERS);
        if self.random.below(2) == 0 {
            return Op::Load { register, cell };
        }
        let value = match self.random.below(2) {
            0 => Value::Constant(self.random.small()),
            _ => Value::Register(register, self.random.small()),
        };
        Op::Store { cell, value }
    }

    fn atomic(&mut self) -> Op {
        let (register, cell) = (self.random.below(REGISTERS), self.random.below(CELLS));
        let value = self.random.small();
        match self.random.below(3) {
            0 => Op::Add { register, cell, amount: value },
            1 => Op::Exchange { register, cell, value },
            _ => Op::CompareSwap { register, cell, expected: self.random.below(2) as u32, value },
        }
    }

    fn conditional(&mut self) -> Op {
        let then = Box::new(self.plain());
        Op::When { register: self.random.below(REGISTERS), value: self.random.below(3) as u32, then }
    }

    /// One random thing of the flavour, as the operations that belong together.
    fn special(&mut self, flavour: Flavour) -> Vec<Op> {
        match flavour {
            Flavour::Plain => vec![self.conditional()],
            Flavour::Atomic => vec![self.atomic()],
            Flavour::Mutex => {
                let mutex = self.random.below(2);
                let mut ops = vec![Op::Lock(mutex), self.plain()];
                if self.random.below(3) == 0 {
                    ops.extend([Op::Lock(1 - mutex), self.plain(), Op::Unlock(1 - mutex)]);
                }
                ops.push(Op::Unlock(mutex));
                ops
            }
            Flavour::Condition => self.condition(),
            Flavour::Semaphore => {
                let semaphore = self.random.below(self.semaphores);
                match self.random.below(2) {
                    0 => vec![Op::Down(semaphore), self.plain()],
                    _ => vec![self.plain(), Op::Up(semaphore)],
                }
            }
            Flavour::Yield => {
                let times = if self.random.below(2) == 0 { MANY } else { self.random.small() };
                vec![Op::Yield { times }]
            }
            Flavour::Wait => {
                let how = if self.random.below(2) == 0 { Waiting::Spinning } else { Waiting::Yielding };
                let (cell, value) = (self.random.below(CELLS), self.random.small());
                vec![match self.random.below(5) {
                    0 | 1 => Op::Await { cell, value, how },
                    2 => Op::Try { cell, value, times: MANY },
                    _ => Op::Store { cell, value: Value::Constant(value) },
                }]
            }
            Flavour::Copy => vec![match self.random.below(3) {
                0 => Op::Copy,
                1 => Op::Fill { value: self.random.small() },
                _ => Op::Peek { register: self.random.below(REGISTERS), word: self.random.below(COPY_WORDS) },
            }],
            Flavour::Stack => vec![match self.random.below(2) {
                0 => Op::PushPop { register: self.random.below(REGISTERS), value: self.random.small() },
                _ => Op::Poke { value: 3 + self.random.small() },
            }],
            Flavour::Rounds => {
                // Others come in between at one place or two: more is too much for exploration.
                if std::mem::replace(&mut self.spent, true) {
                    let look = Op::Load { register: self.random.below(REGISTERS), cell: 0 };
                    return match self.random.below(8) {
                        0 => vec![Op::Lock(0), look, Op::Unlock(0)],
                        1 | 2 => vec![Op::Lock(1), look, Op::Unlock(1)],
                        3..=5 => vec![look],
                        _ => vec![self.plain()],
                    };
                }
                vec![Op::Rounds { times: MANY, mutex: 0, cell: 0 }]
            }
            Flavour::Heap => {
                if !std::mem::replace(&mut self.spent, true) {
                    return vec![Op::Free];
                }
                let register = self.random.below(REGISTERS);
                let touch = Op::Touch { register };
                match self.random.below(2) {
                    0 => vec![touch],
                    _ => vec![Op::When { register, value: 0, then: Box::new(touch) }],
                }
            }
            Flavour::Calls => unreachable!("programs of system calls are generated elsewhere"),
            Flavour::Mixed => {
                let flavour = Flavour::ALL[self.random.below(Flavour::ALL.len() - 1)];
                self.special(flavour)
            }
        }
    }

    fn condition(&mut self) -> Vec<Op> {
        let (cell, value) = (self.random.below(CELLS), self.random.small());
        match self.random.below(4) {
            0 | 1 => {
                let wait = Op::WaitWhile { condition: 0, mutex: 0, cell, value: 0 };
                vec![Op::Lock(0), wait, self.plain(), Op::Unlock(0)]
            }
            2 => {
                let wake = if self.random.below(2) == 0 { Op::Signal(0) } else { Op::Broadcast(0) };
                vec![Op::Lock(0), Op::Store { cell, value: Value::Constant(value) }, wake, Op::Unlock(0)]
            }
            // Without the mutex, which may lose the wake-up.
            _ => vec![Op::Store { cell, value: Value::Constant(value) }, Op::Signal(0)],
        }
    }

    fn thread(&mut self, special: usize, plain: usize) -> Vec<Op> {
        let mut groups: Vec<Vec<Op>> = (0..special).map(|_| self.special(self.flavour)).collect();
        for _ in 0..plain {
            let at = self.random.below(groups.len() + 1);
            let op = self.plain();
            groups.insert(at, vec![op]);
        }
        groups.concat()
    }
}

/// How many threads there are, and how many things of each kind they do at most.
struct Size {
    count: usize,
    special_max: usize,
    plain_max: usize,
}

impl Size {
    /// What waits for others takes many steps, so programs that do are smaller.
    fn of(flavour: Flavour, random: &mut Random) -> Self {
        let counts = match flavour {
            Flavour::Mutex | Flavour::Condition => [2, 2, 2, 2, 3, 3],
            Flavour::Semaphore => [2, 2, 2, 2, 2, 3],
            Flavour::Rounds => [2; 6],
            _ => [2, 2, 2, 3, 3, 4],
        };
        let count = counts[random.below(counts.len())];
        let (special_max, plain_max) = match (flavour, count) {
            (Flavour::Rounds, _) => (1, 0),
            (Flavour::Mutex, 2) => (2, 1),
            (Flavour::Condition | Flavour::Semaphore, 2) => (1, 1),
            (Flavour::Mutex | Flavour::Condition | Flavour::Semaphore, _) => (1, 0),
            (_, 2) => (2, 2),
            (_, count) => (1, 4 - count),
        };
        Self { count, special_max, plain_max }
    }
}

/// The program of a seed.
#[must_use]
pub fn program(seed: u64) -> (Flavour, Program) {
    let random = &mut Random::new(seed);
    let flavour = Flavour::ALL[random.below(Flavour::ALL.len())];
    let Size { count, special_max, plain_max } = Size::of(flavour, random);
    let semaphores: Vec<u32> = (0..1 + random.below(2)).map(|_| random.below(2) as u32).collect();
    let mut generator = Generator { random, flavour, spent: false, semaphores: semaphores.len() };
    let threads: Vec<Vec<Op>> = (0..count)
        .map(|_| {
            let plain = generator.random.below(plain_max + 1);
            let special = 1 + generator.random.below(special_max);
            generator.thread(special, plain)
        })
        .collect();
    let heap = threads.iter().flatten().any(touches_heap);
    (flavour, Program { threads, cells: CELLS, mutexes: 2, conditions: 1, semaphores, heap })
}

/// The program of a seed for threads with store buffers: loads, stores, loops that wait, atomic instructions
/// and fences.
#[must_use]
pub fn buffered(seed: u64) -> (Flavour, Program) {
    let random = &mut Random::new(seed);
    let count = [2, 2, 3][random.below(3)];
    let length_max = if count == 2 { 4 } else { 3 };
    let lengths: Vec<usize> = (0..count).map(|_| 2 + random.below(length_max - 1)).collect();
    let flavour = Flavour::Plain;
    let mut generator = Generator { random, flavour, spent: false, semaphores: 0 };
    let mut op = |_| match generator.random.below(10) {
        0 => Op::Fence,
        1 => generator.atomic(),
        2 => generator.conditional(),
        3 => {
            let (cell, value) = (generator.random.below(CELLS), generator.random.small());
            Op::Await { cell, value, how: Waiting::Spinning }
        }
        _ => generator.plain(),
    };
    let threads: Vec<Vec<Op>> = lengths.iter().map(|&length| (0..length).map(&mut op).collect()).collect();
    let program =
        Program { threads, cells: CELLS, mutexes: 0, conditions: 0, semaphores: Vec::new(), heap: false };
    (flavour, program)
}

fn touches_heap(op: &Op) -> bool {
    match op {
        Op::Free | Op::Touch { .. } => true,
        Op::When { then, .. } => touches_heap(then),
        _ => false,
    }
}

//! Programs for several processors, which the bundled kernel for several processors carries out: each has a
//! few instructions on shared variables, plain ones and locked ones, spin locks, and blocks of a heap that
//! are used and freed.

use std::fmt;

/// As many as the kernel has.
pub const VARIABLES: u32 = 4;
pub const LOCKS: u32 = 2;
pub const BLOCKS: u32 = 2;
pub const REGISTERS: u32 = 6;
/// Instructions of a program, the end not counted.
pub const OPS_MAX: usize = 15;

/// An instruction. Registers are numbered; each belongs to one processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Load {
        variable: u32,
        register: u32,
    },
    Store {
        variable: u32,
        value: u32,
    },
    Copy {
        variable: u32,
        register: u32,
    },
    /// Reads and writes without LOCK: two accesses.
    Add {
        variable: u32,
        value: u32,
    },
    FetchAdd {
        variable: u32,
        value: u32,
        register: u32,
    },
    Exchange {
        variable: u32,
        value: u32,
        register: u32,
    },
    /// Writes if the variable is as expected.
    CompareExchange {
        variable: u32,
        expected: u16,
        value: u32,
        register: u32,
    },
    /// Waits with PAUSE, or by nothing but exchanges.
    Lock {
        lock: u32,
        pauses: bool,
    },
    Unlock {
        lock: u32,
    },
    /// Reads a block, which may be free by then.
    Use {
        block: u32,
        register: u32,
    },
    /// Frees a block; a program frees none twice.
    Free {
        block: u32,
    },
    /// MFENCE.
    Fence,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// For each processor.
    pub parts: Vec<Vec<Op>>,
}

impl Op {
    /// Operation, variable, value and register, as the kernel has them.
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        match self {
            Self::Load { variable, register } => [1, variable, 0, register],
            Self::Store { variable, value } => [2, variable, value, 0],
            Self::Copy { variable, register } => [3, variable, 0, register],
            Self::Add { variable, value } => [4, variable, value, 0],
            Self::FetchAdd { variable, value, register } => [5, variable, value, register],
            Self::Exchange { variable, value, register } => [6, variable, value, register],
            Self::CompareExchange { variable, expected, value, register } => {
                [7, variable, (expected as u32) << 16 | value, register]
            }
            Self::Lock { lock, pauses: true } => [8, lock, 0, 0],
            Self::Unlock { lock } => [9, lock, 0, 0],
            Self::Lock { lock, pauses: false } => [10, lock, 0, 0],
            Self::Use { block, register } => [11, block, 0, register],
            Self::Free { block } => [12, block, 0, 0],
            Self::Fence => [13, 0, 0, 0],
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { variable, register } => write!(f, "r{register} = v{variable}"),
            Self::Store { variable, value } => write!(f, "v{variable} = {value}"),
            Self::Copy { variable, register } => write!(f, "v{variable} = r{register}"),
            Self::Add { variable, value } => write!(f, "v{variable} += {value}"),
            Self::FetchAdd { variable, value, register } => {
                write!(f, "r{register} = fetch_add(v{variable}, {value})")
            }
            Self::Exchange { variable, value, register } => {
                write!(f, "r{register} = exchange(v{variable}, {value})")
            }
            Self::CompareExchange { variable, expected, value, register } => {
                write!(f, "r{register} = compare_exchange(v{variable}, {expected}, {value})")
            }
            Self::Lock { lock, pauses: true } => write!(f, "lock({lock})"),
            Self::Lock { lock, pauses: false } => write!(f, "lock_without_pause({lock})"),
            Self::Unlock { lock } => write!(f, "unlock({lock})"),
            Self::Use { block, register } => write!(f, "r{register} = b{block}"),
            Self::Free { block } => write!(f, "free(b{block})"),
            Self::Fence => write!(f, "fence"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cpu, part) in self.parts.iter().enumerate() {
            let ops: Vec<String> = part.iter().map(Op::to_string).collect();
            writeln!(f, "cpu{cpu}: {}", ops.join("; "))?;
        }
        Ok(())
    }
}

/// Numbers that look random, the same for each seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(end)) as u32
    }

    fn op(&mut self, value: u32, register: u32) -> Op {
        // Few variables, so that processors meet.
        let variable = self.below(4).min(self.below(VARIABLES));
        match self.below(9) {
            0..=2 => Op::Load { variable, register },
            3 | 4 => Op::Store { variable, value },
            5 => Op::Add { variable, value },
            6 => Op::FetchAdd { variable, value, register },
            7 => Op::Exchange { variable, value, register },
            _ => Op::CompareExchange { variable, expected: 0, value, register },
        }
    }

    fn part(&mut self, cpu: u32, length: u32) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut held: Vec<u32> = Vec::new();
        for number in 0..length {
            // What each writes is told apart.
            let value = 1 + cpu * 8 + number;
            let register = number % REGISTERS;
            match self.below(6) {
                0 if (held.len() as u32) < LOCKS => {
                    let lock = self.below(LOCKS);
                    if !held.contains(&lock) {
                        ops.push(Op::Lock { lock, pauses: self.below(2) == 0 });
                        held.push(lock);
                    }
                    ops.push(self.op(value, register));
                }
                1 if !held.is_empty() => {
                    let lock = held.pop().unwrap_or_default();
                    ops.push(Op::Unlock { lock });
                }
                2 if number > 0 => {
                    ops.push(Op::Copy {
                        variable: self.below(VARIABLES),
                        register: self.below(number).min(REGISTERS - 1),
                    });
                }
                _ => ops.push(self.op(value, register)),
            }
        }
        ops.extend(held.into_iter().rev().map(|lock| Op::Unlock { lock }));
        ops.truncate(OPS_MAX);
        ops
    }
}

/// The program of a seed: of two processors, every third of three.
#[must_use]
pub fn program(seed: u64) -> Program {
    let mut draw = Draw(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let cpus = if seed % 3 == 2 { 3 } else { 2 };
    let length_max = if cpus == 3 { 3 } else { 5 };
    let parts = (0..cpus).map(|cpu| {
        let length = 1 + draw.below(length_max);
        draw.part(cpu, length)
    });
    Program { parts: parts.collect() }
}

/// A program for processors with store buffers: that of the seed, with some loads and stores in place of what
/// would drain them, and fences here and there.
#[must_use]
pub fn program_with_fences(seed: u64) -> Program {
    let mut program = program(seed);
    let mut draw = Draw(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
    for (cpu, part) in (0..).zip(&mut program.parts) {
        for (number, op) in (0..).zip(part.iter_mut()) {
            let drains = matches!(op, Op::FetchAdd { .. } | Op::Exchange { .. } | Op::CompareExchange { .. });
            let (variable, register) = (draw.below(2), number % REGISTERS);
            *op = match draw.below(4) {
                0 if drains => Op::Store { variable, value: 1 + cpu * 8 + number },
                1 if drains => Op::Load { variable, register },
                2 if matches!(op, Op::Copy { .. }) => Op::Fence,
                _ => *op,
            };
        }
    }
    program
}

/// The program of a seed with blocks: some of its instructions use one instead, and each block is freed at
/// one place at most.
#[must_use]
pub fn program_with_heap(seed: u64) -> Program {
    let mut program = program(seed);
    let mut draw = Draw(seed.wrapping_mul(0x9e6c_63d0_876a_3f6b));
    let ordinary = |op: &Op| !matches!(op, Op::Lock { .. } | Op::Unlock { .. });
    for op in program.parts.iter_mut().flatten().filter(|op| ordinary(op)) {
        if draw.below(2) == 0 {
            *op = Op::Use { block: draw.below(BLOCKS), register: draw.below(REGISTERS) };
        }
    }
    for block in 0..BLOCKS {
        let cpu = draw.below(program.parts.len() as u32) as usize;
        let part = &mut program.parts[cpu];
        if part.len() < OPS_MAX {
            let at = draw.below(part.len() as u32 + 1) as usize;
            part.insert(at, Op::Free { block });
        }
    }
    program
}

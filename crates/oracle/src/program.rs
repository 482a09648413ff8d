//! A small concurrent program: what its threads do to shared cells, locks, semaphores, a stack and the heap.
//!
//! Concept: the same value is printed as C (`emit.rs`), which runs on the real machine, and is enumerated by
//! `enumerate.rs`, which knows nothing of Rockfall. Its text form is one line for each thread.

use std::fmt;

/// Threads have this many registers, which are local variables of the C program.
pub const REGISTERS: usize = 2;
/// How many words [`Op::Copy`] copies.
pub const COPY_WORDS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Constant(u32),
    /// A register plus a constant.
    Register(usize, u32),
}

/// How a thread waits for a cell to have a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    Spinning,
    Yielding,
    /// Yielding, and counting how often.
    Counting,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Load {
        register: usize,
        cell: usize,
    },
    Store {
        cell: usize,
        value: Value,
    },
    /// Adds atomically; the register gets the old value.
    Add {
        register: usize,
        cell: usize,
        amount: u32,
    },
    Exchange {
        register: usize,
        cell: usize,
        value: u32,
    },
    CompareSwap {
        register: usize,
        cell: usize,
        expected: u32,
        value: u32,
    },
    /// MFENCE.
    Fence,
    Lock(usize),
    Unlock(usize),
    /// With the mutex held: while the cell has this value, wait for the condition.
    WaitWhile {
        condition: usize,
        mutex: usize,
        cell: usize,
        value: u32,
    },
    Signal(usize),
    Broadcast(usize),
    Down(usize),
    Up(usize),
    Yield {
        times: u32,
    },
    Await {
        cell: usize,
        value: u32,
        how: Waiting,
    },
    /// Looks at the cell so many times, unless it has the value before that. The count is in memory, and all
    /// else is the same in each round.
    Try {
        cell: usize,
        value: u32,
        times: u32,
    },
    /// So many rounds of lock, increment, unlock, yield.
    Rounds {
        times: u32,
        mutex: usize,
        cell: usize,
    },
    /// Copies the source array to the target array by one REP MOVS.
    Copy,
    /// Writes all words of the source array, one after the other.
    Fill {
        value: u32,
    },
    /// Reads a word of the target array.
    Peek {
        register: usize,
        word: usize,
    },
    /// Pushes a value onto a stack that others push onto or write to, and pops it.
    PushPop {
        register: usize,
        value: u32,
    },
    /// Writes to that stack.
    Poke {
        value: u32,
    },
    /// Frees the block that was allocated before the threads began; only one thread does.
    Free,
    /// Reads the block.
    Touch {
        register: usize,
    },
    /// Does the operation only if the register has this value.
    When {
        register: usize,
        value: u32,
        then: Box<Op>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    pub threads: Vec<Vec<Op>>,
    pub cells: usize,
    pub mutexes: usize,
    pub conditions: usize,
    /// The initial count of each semaphore.
    pub semaphores: Vec<u32>,
    /// Whether a block of the heap is allocated before the threads begin.
    pub heap: bool,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Constant(value) => write!(f, "{value}"),
            Value::Register(register, 0) => write!(f, "r{register}"),
            Value::Register(register, plus) => write!(f, "r{register}+{plus}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Load { register, cell } => write!(f, "r{register}=c{cell}"),
            Op::Store { cell, value } => write!(f, "c{cell}={value}"),
            Op::Add { register, cell, amount } => write!(f, "r{register}=add(c{cell},{amount})"),
            Op::Exchange { register, cell, value } => write!(f, "r{register}=exchange(c{cell},{value})"),
            Op::CompareSwap { register, cell, expected, value } => {
                write!(f, "r{register}=cas(c{cell},{expected},{value})")
            }
            Op::Fence => write!(f, "fence"),
            Op::Lock(mutex) => write!(f, "lock{mutex}"),
            Op::Unlock(mutex) => write!(f, "unlock{mutex}"),
            Op::WaitWhile { condition, mutex, cell, value } => {
                write!(f, "while(c{cell}=={value})wait{condition}/{mutex}")
            }
            Op::Signal(condition) => write!(f, "signal{condition}"),
            Op::Broadcast(condition) => write!(f, "broadcast{condition}"),
            Op::Down(semaphore) => write!(f, "down{semaphore}"),
            Op::Up(semaphore) => write!(f, "up{semaphore}"),
            Op::Yield { times } => write!(f, "yield*{times}"),
            Op::Await { cell, value, how: Waiting::Spinning } => write!(f, "spin(c{cell}=={value})"),
            Op::Await { cell, value, how: Waiting::Yielding } => write!(f, "await(c{cell}=={value})"),
            Op::Await { cell, value, how: Waiting::Counting } => write!(f, "count(c{cell}=={value})"),
            Op::Try { cell, value, times } => write!(f, "try*{times}(c{cell}=={value})"),
            Op::Rounds { times, mutex, cell } => write!(f, "rounds*{times}(lock{mutex} c{cell}++)"),
            Op::Copy => write!(f, "copy"),
            Op::Fill { value } => write!(f, "fill({value})"),
            Op::Peek { register, word } => write!(f, "r{register}=target[{word}]"),
            Op::PushPop { register, value } => write!(f, "r{register}=pushpop({value})"),
            Op::Poke { value } => write!(f, "poke({value})"),
            Op::Free => write!(f, "free"),
            Op::Touch { register } => write!(f, "r{register}=touch"),
            Op::When { register, value, then } => write!(f, "if(r{register}=={value}){then}"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, thread) in self.threads.iter().enumerate() {
            let ops: Vec<String> = thread.iter().map(Op::to_string).collect();
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{number}: {}", ops.join("; "))?;
        }
        Ok(())
    }
}

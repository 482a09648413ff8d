//! All outcomes of a program for several processors, by going through every state it can be in: an enumerator
//! that knows nothing of machines, steps or reductions.
//!
//! Memory is sequentially consistent; or, with [`Memory::Buffered`], processors have store buffers as the
//! abstract machine of x86-TSO has them (Sewell et al. 2010, section 3): a load takes the youngest store that
//! waits in the processor's own buffer or else memory, the oldest store may go to memory at any time, and
//! locked instructions and fences wait until the buffer is empty. To release a lock is a store. An addition
//! without LOCK is a read and a write. Whoever wants a lock that another holds waits. A block is free from
//! the call on that frees it; which were used later is part of the outcome.

use super::program::{BLOCKS, LOCKS, Op, Program, REGISTERS, VARIABLES};
use crate::enumerate::Memory;
use std::collections::{BTreeSet, VecDeque};

/// States beyond which a program is passed over.
const STATES_MAX: usize = 400_000;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    next: Vec<usize>,
    /// What an addition has read.
    read: Vec<Option<u32>>,
    variables: [u32; VARIABLES as usize],
    held: [bool; LOCKS as usize],
    /// The stores of each processor that wait, the oldest first.
    buffers: Vec<VecDeque<Stored>>,
    registers: Vec<[u32; REGISTERS as usize]>,
    /// What is free, and what was used while it was.
    free: [bool; BLOCKS as usize],
    used: [bool; BLOCKS as usize],
}

/// A store that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stored {
    Variable { variable: u32, value: u32 },
    Unlocked { lock: u32 },
}

/// How a program ended, in words.
#[must_use]
pub fn outcome(stuck: bool, variables: &[u32], registers: &[Vec<u32>], used: &[bool]) -> String {
    let how = if stuck { "stuck" } else { "finished" };
    let used: Vec<usize> =
        used.iter().enumerate().filter(|(_, used)| **used).map(|(block, _)| block).collect();
    format!("{how} v={variables:?} r={registers:?} used after free={used:?}")
}

/// The outcomes in words. `None`: it has too many states.
#[must_use]
pub fn outcomes(program: &Program, memory: Memory) -> Option<BTreeSet<String>> {
    let cpus = program.parts.len();
    let first = State {
        next: vec![0; cpus],
        read: vec![None; cpus],
        variables: [0; VARIABLES as usize],
        held: [false; LOCKS as usize],
        buffers: vec![VecDeque::new(); cpus],
        registers: vec![[0; REGISTERS as usize]; cpus],
        free: [false; BLOCKS as usize],
        used: [false; BLOCKS as usize],
    };
    let mut known = BTreeSet::from([first.clone()]);
    let mut open = vec![first];
    let mut outcomes = BTreeSet::new();
    while let Some(state) = open.pop() {
        let mut goes_on = false;
        for cpu in 0..cpus {
            let op = program.parts[cpu].get(state.next[cpu]);
            let goes = op.and_then(|&op| after(&state, cpu, op, memory));
            for after in [goes, drained(&state, cpu)].into_iter().flatten() {
                goes_on = true;
                if known.insert(after.clone()) {
                    open.push(after);
                }
            }
        }
        if known.len() > STATES_MAX {
            return None;
        }
        if !goes_on {
            let stuck = (0..cpus).any(|cpu| state.next[cpu] < program.parts[cpu].len());
            let registers: Vec<Vec<u32>> = state.registers.iter().map(|of| of.to_vec()).collect();
            outcomes.insert(outcome(stuck, &state.variables, &registers, &state.used));
        }
    }
    Some(outcomes)
}

/// What follows if the oldest store of this processor's buffer reaches memory.
fn drained(state: &State, cpu: usize) -> Option<State> {
    let mut after = state.clone();
    let oldest = after.buffers[cpu].pop_front()?;
    after.keep(oldest);
    Some(after)
}

impl State {
    /// A store reaches memory.
    fn keep(&mut self, store: Stored) {
        match store {
            Stored::Variable { variable, value } => self.variables[variable as usize] = value,
            Stored::Unlocked { lock } => self.held[lock as usize] = false,
        }
    }

    fn store(&mut self, cpu: usize, store: Stored, memory: Memory) {
        match memory {
            Memory::AtOnce => self.keep(store),
            Memory::Buffered => self.buffers[cpu].push_back(store),
        }
    }

    /// What a processor reads.
    fn load(&self, cpu: usize, wanted: u32) -> u32 {
        let own = self.buffers[cpu].iter().rev().find_map(|store| match *store {
            Stored::Variable { variable, value } if variable == wanted => Some(value),
            _ => None,
        });
        own.unwrap_or(self.variables[wanted as usize])
    }
}

/// What follows if this processor goes on; `None` if it cannot.
fn after(state: &State, cpu: usize, op: Op, memory: Memory) -> Option<State> {
    let mut after = state.clone();
    let plain = matches!(
        op,
        Op::Load { .. } | Op::Store { .. } | Op::Copy { .. } | Op::Add { .. } | Op::Unlock { .. }
    );
    if !plain && !state.buffers[cpu].is_empty() {
        return None;
    }
    match op {
        Op::Load { variable, register } => {
            after.registers[cpu][register as usize] = state.load(cpu, variable)
        }
        Op::Store { variable, value } => after.store(cpu, Stored::Variable { variable, value }, memory),
        Op::Copy { variable, register } => {
            let value = state.registers[cpu][register as usize];
            after.store(cpu, Stored::Variable { variable, value }, memory);
        }
        Op::Add { variable, value } => match after.read[cpu].take() {
            Some(before) => {
                let value = before.wrapping_add(value);
                after.store(cpu, Stored::Variable { variable, value }, memory);
            }
            None => {
                after.read[cpu] = Some(state.load(cpu, variable));
                return Some(after);
            }
        },
        Op::Unlock { lock } => after.store(cpu, Stored::Unlocked { lock }, memory),
        op => after.at_once(cpu, op)?,
    }
    after.next[cpu] += 1;
    Some(after)
}

impl State {
    /// Does what others see at once. `None`: it cannot be done.
    fn at_once(&mut self, cpu: usize, op: Op) -> Option<()> {
        let Self { variables, held, registers, free, used, .. } = self;
        let own = &mut registers[cpu];
        match op {
            Op::FetchAdd { variable, value, register } => {
                own[register as usize] = variables[variable as usize];
                variables[variable as usize] = variables[variable as usize].wrapping_add(value);
            }
            Op::Exchange { variable, value, register } => {
                own[register as usize] = variables[variable as usize];
                variables[variable as usize] = value;
            }
            Op::CompareExchange { variable, expected, value, register } => {
                own[register as usize] = variables[variable as usize];
                if own[register as usize] == u32::from(expected) {
                    variables[variable as usize] = value;
                }
            }
            Op::Lock { lock, .. } if held[lock as usize] => return None,
            Op::Lock { lock, .. } => held[lock as usize] = true,
            Op::Use { block, register } => {
                own[register as usize] = 0;
                used[block as usize] |= free[block as usize];
            }
            Op::Free { block } => free[block as usize] = true,
            _ => {}
        }
        Some(())
    }
}

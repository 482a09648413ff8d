//! All outcomes of a program for several processors, by going through every state it can be in: an enumerator that knows
//! nothing of machines, steps or reductions.
//!
//! Memory is sequentially consistent. An addition without LOCK is a read and a write. Whoever wants a lock that another
//! holds waits. A block is free from the call on that frees it; which were used later is part of the outcome.

use super::program::{BLOCKS, LOCKS, Op, Program, REGISTERS, VARIABLES};
use std::collections::BTreeSet;

/// States beyond which a program is passed over.
const STATES_MAX: usize = 400_000;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    next: Vec<usize>,
    /// What an addition has read.
    read: Vec<Option<u32>>,
    variables: [u32; VARIABLES as usize],
    held: [bool; LOCKS as usize],
    registers: Vec<[u32; REGISTERS as usize]>,
    /// What is free, and what was used while it was.
    free: [bool; BLOCKS as usize],
    used: [bool; BLOCKS as usize],
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
pub fn outcomes(program: &Program) -> Option<BTreeSet<String>> {
    let cpus = program.parts.len();
    let first = State {
        next: vec![0; cpus],
        read: vec![None; cpus],
        variables: [0; VARIABLES as usize],
        held: [false; LOCKS as usize],
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
            let Some(&op) = program.parts[cpu].get(state.next[cpu]) else { continue };
            let Some(after) = after(&state, cpu, op) else { continue };
            goes_on = true;
            if known.insert(after.clone()) {
                open.push(after);
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

/// What follows if this processor goes on; `None` if it cannot.
fn after(state: &State, cpu: usize, op: Op) -> Option<State> {
    let mut after = state.clone();
    let State { next, read, variables, held, registers, free, used } = &mut after;
    let own = &mut registers[cpu];
    match op {
        Op::Load { variable, register } => own[register as usize] = variables[variable as usize],
        Op::Store { variable, value } => variables[variable as usize] = value,
        Op::Copy { variable, register } => variables[variable as usize] = own[register as usize],
        Op::Add { variable, value } => match read[cpu].take() {
            Some(before) => variables[variable as usize] = before.wrapping_add(value),
            None => {
                read[cpu] = Some(variables[variable as usize]);
                return Some(after);
            }
        },
        Op::FetchAdd { variable, value, register } => {
            own[register as usize] = variables[variable as usize];
            variables[variable as usize] = variables[variable as usize].wrapping_add(value);
        }
        Op::Exchange { variable, value, register } => {
            own[register as usize] = variables[variable as usize];
            variables[variable as usize] = value;
        }
        Op::CompareExchange { variable, value, register } => {
            own[register as usize] = variables[variable as usize];
            if own[register as usize] == 0 {
                variables[variable as usize] = value;
            }
        }
        Op::Lock { lock, .. } if held[lock as usize] => return None,
        Op::Lock { lock, .. } => held[lock as usize] = true,
        Op::Unlock { lock } => held[lock as usize] = false,
        Op::Use { block, register } => {
            own[register as usize] = 0;
            used[block as usize] |= free[block as usize];
        }
        Op::Free { block } => free[block as usize] = true,
    }
    next[cpu] += 1;
    Some(after)
}

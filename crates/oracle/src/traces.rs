//! How many executions a program has that differ in more than the order of independent steps (Mazurkiewicz
//! traces).
//!
//! Concept: an optimal exploration runs one execution for each trace of what it explores. What is explored is
//! more than the program, since its threads are created and ended by a kernel; how much more is a figure
//! worth knowing.
//!
//! A trace is written as, for each cell, its stores in their order and, between two stores, the set of loads.
//! Prefixes are visited once for each such text. Nothing here is shared with Rockfall.
//!
//! Limits: programs of loads, stores and atomic updates of cells only, and at most [`PREFIXES_MAX`] prefixes.

use crate::program::{Op, Program, REGISTERS, Value};
use std::collections::BTreeSet;

const PREFIXES_MAX: usize = 200_000;

/// An access: its thread and how many the thread made before.
type Name = (u8, u8);

/// What has happened to a cell: groups of loads, each ended by a store, the last one open.
type History = Vec<(BTreeSet<Name>, Option<Name>)>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    /// How many operations each thread has done, and how many accesses that was.
    at: Vec<(usize, u8)>,
    registers: Vec<[u32; REGISTERS]>,
    cells: Vec<u32>,
    histories: Vec<History>,
}

/// The number of traces; `None` if the program has other operations, or too many prefixes.
#[must_use]
pub fn traces(program: &Program) -> Option<u64> {
    let threads = program.threads.len();
    let mut first = Prefix {
        at: vec![(0, 0); threads],
        registers: vec![[0; REGISTERS]; threads],
        cells: vec![0; program.cells],
        histories: vec![vec![(BTreeSet::new(), None)]; program.cells],
    };
    for thread in 0..threads {
        first.skip(program, thread)?;
    }
    let mut seen = BTreeSet::from([first.clone()]);
    let mut stack = vec![first];
    let mut traces = 0;
    while let Some(prefix) = stack.pop() {
        let mut ended = true;
        for thread in 0..threads {
            let Some(op) = program.threads[thread].get(prefix.at[thread].0) else { continue };
            ended = false;
            let mut next = prefix.clone();
            next.step(thread, op)?;
            next.skip(program, thread)?;
            if seen.insert(next.clone()) {
                if seen.len() > PREFIXES_MAX {
                    return None;
                }
                stack.push(next);
            }
        }
        traces += u64::from(ended);
    }
    Some(traces)
}

impl Prefix {
    /// Passes over operations whose condition does not hold: they access nothing.
    fn skip(&mut self, program: &Program, thread: usize) -> Option<()> {
        while let Some(Op::When { register, value, .. }) = program.threads[thread].get(self.at[thread].0)
            && self.registers[thread][*register] != *value
        {
            self.at[thread].0 += 1;
        }
        Some(())
    }

    fn step(&mut self, thread: usize, op: &Op) -> Option<()> {
        match *op {
            Op::Load { register, cell } => {
                let value = self.cells[cell];
                self.access(thread, cell, false);
                self.registers[thread][register] = value;
            }
            Op::Store { cell, value } => {
                self.cells[cell] = match value {
                    Value::Constant(value) => value,
                    Value::Register(register, plus) => self.registers[thread][register].wrapping_add(plus),
                };
                self.access(thread, cell, true);
            }
            Op::Add { register, cell, amount } => {
                self.update(thread, register, cell, |old| old.wrapping_add(amount))
            }
            Op::Exchange { register, cell, value } => self.update(thread, register, cell, |_| value),
            Op::CompareSwap { register, cell, expected, value } => {
                self.update(thread, register, cell, |old| if old == expected { value } else { old });
            }
            Op::When { ref then, .. } => return self.step(thread, then),
            _ => return None,
        }
        self.at[thread].0 += 1;
        Some(())
    }

    fn update(&mut self, thread: usize, register: usize, cell: usize, new: impl Fn(u32) -> u32) {
        let old = self.cells[cell];
        self.cells[cell] = new(old);
        self.registers[thread][register] = old;
        self.access(thread, cell, true);
    }

    fn access(&mut self, thread: usize, cell: usize, stores: bool) {
        let name = (thread as u8, self.at[thread].1);
        self.at[thread].1 += 1;
        let history = &mut self.histories[cell];
        let open = history.last_mut().expect("one group is always open");
        if stores {
            open.1 = Some(name);
            history.push((BTreeSet::new(), None));
        } else {
            open.0.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(threads: &[&[Op]], expected: Option<u64>) {
        let program = Program {
            threads: threads.iter().map(|ops| ops.to_vec()).collect(),
            cells: 2,
            ..Program::default()
        };
        assert_eq!(traces(&program), expected, "{program}");
    }

    #[test]
    fn orders_of_conflicting_accesses_are_counted() {
        let load = |cell| Op::Load { register: 0, cell };
        let store = |cell| Op::Store { cell, value: Value::Constant(1) };
        check(&[&[load(0)], &[load(0)], &[load(0)]], Some(1));
        check(&[&[store(0)], &[store(1)]], Some(1));
        check(&[&[store(0)], &[load(0)]], Some(2));
        check(&[&[store(0)], &[store(0)], &[store(0)]], Some(6));
        // Each load is before or after the store, whatever the other one is.
        check(&[&[store(0)], &[load(0)], &[load(0)]], Some(4));
        // The second load sees the store if the first one does.
        check(&[&[store(0)], &[load(0), load(0)]], Some(3));
        let when = Op::When { register: 0, value: 1, then: Box::new(store(1)) };
        check(&[&[store(0)], &[load(0), when], &[store(1)]], Some(3));
        check(&[&[Op::Lock(0)]], None);
    }
}

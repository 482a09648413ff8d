//! All outcomes of a program, by brute force over an abstract machine.
//!
//! Concept: sequentially consistent interleaving of atomic steps, each of which touches at most one shared
//! thing. Every state is visited once, by depth-first search with a set of the states seen. There is no
//! reduction, no preemption point and no scheduler, and nothing here is shared with Rockfall: where the two
//! disagree, one of them is wrong.
//!
//! With [`Memory::Buffered`] each thread has a store buffer, as the abstract machine of x86-TSO has it
//! (Sewell et al. 2010, section 3): a store goes to its end, a load takes the youngest store to its cell that
//! is there or else memory, the oldest store may go to memory at any time, and everything but loads and
//! stores waits until the buffer is empty.
//!
//! What the thread library promises is modelled as it is documented: a mutex is handed to whoever waits
//! longest; a thread that waits for a condition is in its queue before it has left the mutex; a signal takes
//! the first of the queue; a semaphore is a counter behind a mutex and a condition.
//!
//! Limits: the enumeration gives up beyond [`STATES_MAX`] states, and says so.

use crate::program::{COPY_WORDS, Op, Program, REGISTERS, Value};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

pub const STATES_MAX: usize = 400_000;

/// When others see what a thread stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    AtOnce,
    /// When the thread's store buffer has drained it.
    Buffered,
}

/// How an execution may end, and with what in memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outcome {
    pub end: End,
    pub cells: Vec<u32>,
    /// Registers of the threads that came to their end; zeros for others.
    pub registers: Vec<[u32; REGISTERS]>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    Finished,
    /// No thread can go on.
    Stuck,
    /// A freed block was read.
    UseAfterFree,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::UseAfterFree => return write!(f, "use after free"),
            End::Finished => "finished",
            End::Stuck => "stuck",
        };
        write!(f, "{end} c={:?} r={:?}", self.cells, self.registers)
    }
}

/// An atomic step of a thread. Jumps cost nothing: they are taken together with the step before them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Spawn(usize),
    Load {
        register: usize,
        cell: usize,
    },
    Store {
        cell: usize,
        value: Value,
    },
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
    Lock(usize),
    Unlock(usize),
    Enqueue(usize),
    /// The thread waits until it is woken.
    Sleep,
    Dequeue(usize),
    DequeueAll(usize),
    /// Wakes the first of the threads that this one has taken out of a queue.
    Wake,
    /// A step without effect, before which others can still come in.
    Nothing,
    Fence,
    /// A step that is possible only while the cell has the value.
    Await {
        cell: usize,
        value: u32,
    },
    CopyWord(usize),
    FillWord {
        word: usize,
        value: u32,
    },
    Peek {
        register: usize,
        word: usize,
    },
    Push(u32),
    Pop {
        register: usize,
    },
    Free,
    Touch {
        register: usize,
    },
    /// Goes on elsewhere unless the cell has the value. Looking at the cell is the step.
    UnlessCell {
        cell: usize,
        value: u32,
        to: usize,
    },
    /// Goes on elsewhere unless the register has the value.
    Unless {
        register: usize,
        value: u32,
        to: usize,
    },
    Jump(usize),
    /// Goes on elsewhere while there are threads to be woken.
    WhileAwake {
        to: usize,
    },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Thread {
    at: usize,
    started: bool,
    registers: [u32; REGISTERS],
    woken: bool,
    /// Threads that this one has taken out of a queue, to wake them.
    taken: VecDeque<usize>,
    /// Whether the thread waits to be handed a mutex.
    queued: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    threads: Vec<Thread>,
    cells: Vec<u32>,
    source: [u32; COPY_WORDS],
    target: [u32; COPY_WORDS],
    stack: u32,
    freed: bool,
    /// Cells and values that others do not see yet, the oldest first, for each thread.
    buffers: Vec<VecDeque<(usize, u32)>>,
    /// For each mutex its owner and the threads that wait, the longest first.
    mutexes: Vec<(Option<usize>, VecDeque<usize>)>,
    conditions: Vec<VecDeque<usize>>,
}

/// The steps of a thread as they are being made. Hidden mutexes, conditions and cells of semaphores come
/// behind the program's own.
struct Compiler<'a> {
    program: &'a Program,
    steps: Vec<Step>,
}

impl Compiler<'_> {
    fn wait_while(&mut self, condition: usize, mutex: usize, cell: usize, value: u32) {
        let again = self.steps.len();
        let look = self.steps.len();
        self.steps.push(Step::UnlessCell { cell, value, to: 0 });
        self.steps.extend([Step::Enqueue(condition), Step::Unlock(mutex), Step::Sleep, Step::Lock(mutex)]);
        self.steps.push(Step::Jump(again));
        let end = self.steps.len();
        self.steps[look] = Step::UnlessCell { cell, value, to: end };
    }

    fn op(&mut self, op: &Op) {
        match *op {
            Op::Load { register, cell } => self.steps.push(Step::Load { register, cell }),
            Op::Store { cell, value } => self.steps.push(Step::Store { cell, value }),
            Op::Add { register, cell, amount } => self.steps.push(Step::Add { register, cell, amount }),
            Op::Exchange { register, cell, value } => {
                self.steps.push(Step::Exchange { register, cell, value });
            }
            Op::CompareSwap { register, cell, expected, value } => {
                self.steps.push(Step::CompareSwap { register, cell, expected, value });
            }
            Op::Fence => self.steps.push(Step::Fence),
            Op::Lock(mutex) => self.steps.push(Step::Lock(mutex)),
            Op::Unlock(mutex) => self.steps.push(Step::Unlock(mutex)),
            Op::WaitWhile { condition, mutex, cell, value } => self.wait_while(condition, mutex, cell, value),
            Op::Signal(condition) => self.steps.extend([Step::Dequeue(condition), Step::Wake]),
            Op::Broadcast(condition) => {
                self.steps.extend([Step::DequeueAll(condition), Step::Wake]);
                let wake = self.steps.len() - 1;
                self.steps.push(Step::WhileAwake { to: wake });
            }
            Op::Down(semaphore) => {
                let (mutex, condition, count) = self.semaphore(semaphore);
                self.steps.push(Step::Lock(mutex));
                self.wait_while(condition, mutex, count, 0);
                // Behind the mutex nobody else sees the two halves.
                self.steps.push(Step::Add { register: REGISTERS, cell: count, amount: u32::MAX });
                self.steps.push(Step::Unlock(mutex));
            }
            Op::Up(semaphore) => {
                let (mutex, condition, count) = self.semaphore(semaphore);
                self.steps.push(Step::Lock(mutex));
                self.steps.push(Step::Add { register: REGISTERS, cell: count, amount: 1 });
                self.steps.extend([Step::Dequeue(condition), Step::Wake, Step::Unlock(mutex)]);
            }
            Op::Yield { times } => self.steps.extend((0..times).map(|_| Step::Nothing)),
            Op::Await { cell, value, .. } => self.steps.push(Step::Await { cell, value }),
            Op::Try { cell, value, times } => {
                let end = self.steps.len() + 2 * times as usize;
                for _ in 0..times {
                    let next = self.steps.len() + 2;
                    self.steps.extend([Step::UnlessCell { cell, value, to: next }, Step::Jump(end)]);
                }
            }
            Op::Rounds { times, mutex, cell } => {
                for _ in 0..times {
                    self.steps.push(Step::Lock(mutex));
                    // The increment is a load and a store; the thread's last register is not the program's.
                    self.steps.push(Step::Load { register: REGISTERS, cell });
                    self.steps.push(Step::Store { cell, value: Value::Register(REGISTERS, 1) });
                    self.steps.push(Step::Unlock(mutex));
                    self.steps.push(Step::Nothing);
                }
            }
            Op::Copy => self.steps.extend((0..COPY_WORDS).map(Step::CopyWord)),
            Op::Fill { value } => {
                self.steps.extend((0..COPY_WORDS).map(|word| Step::FillWord { word, value }));
            }
            Op::Peek { register, word } => self.steps.push(Step::Peek { register, word }),
            Op::PushPop { register, value } => {
                self.steps.extend([Step::Push(value), Step::Pop { register }]);
            }
            Op::Poke { value } => self.steps.push(Step::Push(value)),
            Op::Free => self.steps.push(Step::Free),
            Op::Touch { register } => self.steps.push(Step::Touch { register }),
            Op::When { register, value, ref then } => {
                let test = self.steps.len();
                self.steps.push(Step::Jump(0));
                self.op(then);
                self.steps[test] = Step::Unless { register, value, to: self.steps.len() };
            }
        }
    }

    /// The mutex, condition and cell behind a semaphore.
    fn semaphore(&self, number: usize) -> (usize, usize, usize) {
        let Program { mutexes, conditions, cells, .. } = self.program;
        (mutexes + number, conditions + number, cells + number)
    }
}

/// All outcomes; `None` if there are too many states.
#[must_use]
pub fn outcomes(program: &Program, memory: Memory) -> Option<BTreeSet<Outcome>> {
    let code: Vec<Vec<Step>> = (0..program.threads.len())
        .map(|number| {
            let mut compiler = Compiler { program, steps: Vec::new() };
            if number == 0 {
                compiler.steps.extend((1..program.threads.len()).map(Step::Spawn));
            }
            program.threads[number].iter().for_each(|op| compiler.op(op));
            compiler.steps
        })
        .collect();
    let semaphores = program.semaphores.len();
    let mut first = State {
        threads: (0..code.len())
            .map(|number| Thread {
                at: 0,
                started: number == 0,
                registers: [0; REGISTERS],
                woken: false,
                taken: VecDeque::new(),
                queued: false,
            })
            .collect(),
        cells: vec![0; program.cells],
        source: [0; COPY_WORDS],
        target: [0; COPY_WORDS],
        stack: 0,
        freed: false,
        buffers: vec![VecDeque::new(); code.len()],
        mutexes: vec![(None, VecDeque::new()); program.mutexes + semaphores],
        conditions: vec![VecDeque::new(); program.conditions + semaphores],
    };
    first.cells.extend(&program.semaphores);
    // Each thread has one hidden register, kept behind the cells.
    first.cells.extend(vec![0; code.len()]);
    for number in 0..code.len() {
        first.follow_jumps(number, &code);
    }
    let mut seen = BTreeSet::from([first.clone()]);
    let mut stack = vec![first];
    let mut outcomes = BTreeSet::new();
    while let Some(state) = stack.pop() {
        let mut moved = false;
        for number in 0..code.len() {
            let mut next = state.clone();
            match next.step(number, &code, memory) {
                Moved::No => continue,
                Moved::UseAfterFree => {
                    moved = true;
                    outcomes.insert(next.outcome(End::UseAfterFree, program, &code));
                    continue;
                }
                Moved::Yes => moved = true,
            }
            next.follow_jumps(number, &code);
            if seen.insert(next.clone()) {
                if seen.len() > STATES_MAX {
                    return None;
                }
                stack.push(next);
            }
        }
        for number in 0..code.len() {
            let mut next = state.clone();
            let Some((cell, value)) = next.buffers[number].pop_front() else { continue };
            moved = true;
            next.cells[cell] = value;
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
        if !moved {
            let finished = (0..code.len()).all(|number| state.is_over(number, &code));
            outcomes.insert(state.outcome(if finished { End::Finished } else { End::Stuck }, program, &code));
        }
    }
    Some(outcomes)
}

/// Whether a step is a load or a store of a cell, or nothing at all.
const fn is_plain(step: Step) -> bool {
    matches!(step, Step::Load { .. } | Step::Store { .. } | Step::Await { .. } | Step::Nothing)
}

enum Moved {
    Yes,
    No,
    UseAfterFree,
}

impl State {
    fn is_over(&self, number: usize, code: &[Vec<Step>]) -> bool {
        self.threads[number].started && self.threads[number].at == code[number].len()
    }

    fn outcome(&self, end: End, program: &Program, code: &[Vec<Step>]) -> Outcome {
        if end == End::UseAfterFree {
            return Outcome { end, cells: Vec::new(), registers: Vec::new() };
        }
        let registers = (0..self.threads.len())
            .map(|n| if self.is_over(n, code) { self.threads[n].registers } else { [0; REGISTERS] })
            .collect();
        Outcome { end, cells: self.cells[..program.cells].to_vec(), registers }
    }

    fn set(&mut self, number: usize, register: usize, value: u32) {
        match self.threads[number].registers.get_mut(register) {
            Some(place) => *place = value,
            None => {
                let hidden = self.cells.len() - self.threads.len() + number;
                self.cells[hidden] = value;
            }
        }
    }

    fn value(&self, number: usize, value: Value) -> u32 {
        match value {
            Value::Constant(value) => value,
            Value::Register(register, plus) => {
                let hidden = self.cells.len() - self.threads.len() + number;
                let base = self.threads[number].registers.get(register).unwrap_or(&self.cells[hidden]);
                base.wrapping_add(plus)
            }
        }
    }

    /// What a thread does without touching anything shared belongs to the step before.
    fn follow_jumps(&mut self, number: usize, code: &[Vec<Step>]) {
        loop {
            let thread = &mut self.threads[number];
            match code[number].get(thread.at) {
                Some(&Step::Jump(to)) => thread.at = to,
                Some(&Step::Unless { register, value, to }) => {
                    thread.at = if thread.registers[register] == value { thread.at + 1 } else { to };
                }
                Some(&Step::WhileAwake { to }) => {
                    thread.at = if thread.taken.is_empty() { thread.at + 1 } else { to };
                }
                _ => return,
            }
        }
    }

    /// What the thread sees in a cell.
    fn load(&self, number: usize, cell: usize) -> u32 {
        let own = self.buffers[number].iter().rev().find(|(stored, _)| *stored == cell);
        own.map_or(self.cells[cell], |&(_, value)| value)
    }

    fn step(&mut self, number: usize, code: &[Vec<Step>], memory: Memory) -> Moved {
        let thread = &self.threads[number];
        if !thread.started || thread.queued {
            return Moved::No;
        }
        let Some(&step) = code[number].get(thread.at) else { return Moved::No };
        if !is_plain(step) && !self.buffers[number].is_empty() {
            return Moved::No;
        }
        let mut next = thread.at + 1;
        match step {
            Step::Spawn(other) => self.threads[other].started = true,
            Step::Load { register, cell } => self.set(number, register, self.load(number, cell)),
            Step::Store { cell, value } if memory == Memory::Buffered => {
                let value = self.value(number, value);
                self.buffers[number].push_back((cell, value));
            }
            Step::Store { cell, value } => self.cells[cell] = self.value(number, value),
            Step::Add { register, cell, amount } => {
                let old = self.cells[cell];
                self.cells[cell] = old.wrapping_add(amount);
                if register < REGISTERS {
                    self.set(number, register, old);
                }
            }
            Step::Exchange { register, cell, value } => {
                let old = std::mem::replace(&mut self.cells[cell], value);
                self.set(number, register, old);
            }
            Step::CompareSwap { register, cell, expected, value } => {
                let old = self.cells[cell];
                if old == expected {
                    self.cells[cell] = value;
                }
                self.set(number, register, old);
            }
            Step::Lock(mutex) => match self.mutexes[mutex].0 {
                None => self.mutexes[mutex].0 = Some(number),
                Some(_) => {
                    self.mutexes[mutex].1.push_back(number);
                    self.threads[number].queued = true;
                    next = self.threads[number].at;
                }
            },
            Step::Unlock(mutex) => {
                let heir = self.mutexes[mutex].1.pop_front();
                self.mutexes[mutex].0 = heir;
                if let Some(heir) = heir {
                    self.threads[heir].queued = false;
                    self.threads[heir].at += 1;
                    self.follow_jumps(heir, code);
                }
            }
            Step::Enqueue(condition) => self.conditions[condition].push_back(number),
            Step::Sleep if !self.threads[number].woken => return Moved::No,
            Step::Sleep => self.threads[number].woken = false,
            Step::Dequeue(condition) => {
                let first = self.conditions[condition].pop_front();
                self.threads[number].taken.extend(first);
            }
            Step::DequeueAll(condition) => {
                let all = std::mem::take(&mut self.conditions[condition]);
                self.threads[number].taken.extend(all);
            }
            Step::Wake => {
                if let Some(other) = self.threads[number].taken.pop_front() {
                    self.threads[other].woken = true;
                }
            }
            Step::Nothing | Step::Fence => {}
            Step::Await { cell, value } if self.load(number, cell) != value => return Moved::No,
            Step::Await { .. } => {}
            Step::CopyWord(word) => self.target[word] = self.source[word],
            Step::FillWord { word, value } => self.source[word] = value,
            Step::Peek { register, word } => self.set(number, register, self.target[word]),
            Step::Push(value) => self.stack = value,
            Step::Pop { register } => self.set(number, register, self.stack),
            Step::Free => self.freed = true,
            Step::Touch { .. } if self.freed => return Moved::UseAfterFree,
            Step::Touch { register } => self.set(number, register, 0),
            Step::UnlessCell { cell, value, to } => {
                if self.load(number, cell) != value {
                    next = to;
                }
            }
            Step::Unless { .. } | Step::Jump(_) | Step::WhileAwake { .. } => {
                unreachable!("jumps are followed")
            }
        }
        self.threads[number].at = next;
        Moved::Yes
    }
}

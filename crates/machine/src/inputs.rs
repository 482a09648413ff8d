//! Everything that comes into a machine from outside, and the tape that keeps it.
//!
//! What a machine does is a function of the machine and of its [`Input`]s: which processor runs how far, the
//! ticks that a caller decides over and the interrupts whose arrival it does, keys, bytes of the serial line,
//! injected interrupts, time that is slept through, memory that is written from outside. Each is a method of
//! [`Machine`], and a machine that is asked to ([`Machine::record`]) keeps them as a [`Tape`]. A tape and a
//! clone of the machine from where it began are the whole execution: [`Playback`] runs it again on the
//! machine alone, without whoever drove it, stops wherever a [`StopSet`] says, and goes on from there.
//!
//! A place in a processor's execution is a [`Moment`]: a number of instructions is not enough, because
//! interrupts are taken between two of them, before or after what comes from outside. Limits: fields of the
//! machine that are changed directly are not on the tape.

use crate::board::{TimerMode, TimerSource};
use crate::devices::keyboard::Key;
use crate::machine::Machine;
use crate::{Events, Stop, StopSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use trace::{CpuId, PhysAddr};

/// A place in the execution of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moment {
    /// How many instructions the processor has executed.
    pub executed: u64,
    /// How many interrupts and debug traps it has taken between instructions.
    pub taken: u64,
    /// Whether everything that is due before the next instruction has happened: devices have caught up with
    /// the time, and interrupts that can be taken were.
    pub after_due: bool,
}

/// Something that comes into a machine from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// A processor runs up to a moment of its execution.
    Run {
        /// The processor.
        cpu: CpuId,
        /// Where it stops.
        to: Moment,
    },
    /// What decides when timers expire, from now on.
    Timers(TimerMode),
    /// The timer of a processor ticks, as if its time had come.
    Tick(CpuId),
    /// Time passes until the timer of a processor expires.
    Expire(CpuId),
    /// Interrupts between processors are held from now on, or no longer.
    HoldMessages(bool),
    /// An interrupt in transit arrives.
    Arrive {
        /// The processor.
        cpu: CpuId,
        /// The vector of the interrupt.
        vector: u8,
    },
    /// Time passes until the next event of a chip.
    Sleep,
    /// A processor takes an interrupt, whatever its flags say.
    Inject {
        /// The processor.
        cpu: CpuId,
        /// The vector of the interrupt.
        vector: u8,
    },
    /// The transaction that a processor is about to begin aborts at once.
    Refuse {
        /// The processor.
        cpu: CpuId,
        /// The status with which it aborts.
        status: u32,
    },
    /// The transaction of a processor is taken out of it.
    Suspend(CpuId),
    /// A suspended transaction goes on at a processor.
    Resume {
        /// The processor.
        cpu: CpuId,
        /// The name that the transaction got when it was suspended.
        transaction: u32,
    },
    /// Bytes arrive at the first serial port.
    Serial(Vec<u8>),
    /// A text is typed on the keyboard.
    Text(String),
    /// A key is pressed.
    Key(Key),
    /// Memory is written.
    Write {
        /// The physical address of the first byte.
        at: PhysAddr,
        /// The bytes that are written.
        bytes: Vec<u8>,
    },
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { cpu, to: Moment { executed, taken, after_due } } => {
                let before = if *after_due { "" } else { ", before what is due" };
                write!(f, "{cpu} runs to {executed} instructions and {taken} interrupts{before}")
            }
            Self::Timers(mode) => write!(f, "timers: {mode:?}"),
            Self::Tick(cpu) => write!(f, "tick of {cpu}"),
            Self::Expire(cpu) => write!(f, "the timer of {cpu} expires"),
            Self::HoldMessages(true) => write!(f, "interrupts between processors are held"),
            Self::HoldMessages(false) => write!(f, "interrupts between processors arrive at once"),
            Self::Arrive { cpu, vector } => write!(f, "interrupt {vector} arrives at {cpu}"),
            Self::Sleep => write!(f, "time passes"),
            Self::Inject { cpu, vector } => write!(f, "interrupt {vector} at {cpu}"),
            Self::Refuse { cpu, status } => write!(f, "no transaction at {cpu}: status {status:#x}"),
            Self::Suspend(cpu) => write!(f, "the transaction of {cpu} is suspended"),
            Self::Resume { cpu, transaction } => write!(f, "transaction {transaction} goes on at {cpu}"),
            Self::Serial(bytes) => write!(f, "serial line: {}", bytes.escape_ascii()),
            Self::Text(text) => write!(f, "keyboard: {}", text.escape_debug()),
            Self::Key(key) => write!(f, "keyboard: {key:?}"),
            Self::Write { at, bytes } => write!(f, "{} bytes written at {at}", bytes.len()),
        }
    }
}

/// What came into a machine since it was told to [`Machine::record`], in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tape {
    inputs: Vec<Input>,
}

impl Tape {
    /// The inputs, oldest first.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Adds an input; a run that goes on where the last one ended becomes part of that.
    pub(crate) fn push(&mut self, input: Input) {
        if let (Some(Input::Run { cpu: last, .. }), Input::Run { cpu, .. }) = (self.inputs.last(), &input)
            && last == cpu
        {
            self.inputs.pop();
        }
        self.inputs.push(input);
    }
}

/// A tape that is being played on a machine.
#[derive(Clone, Debug)]
pub struct Playback<'a> {
    tape: &'a Tape,
    /// How many inputs have come in.
    next: usize,
}

/// How far a tape was played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Played {
    /// The tape was played to its end.
    End,
    /// The processor stopped as `until` asked; playing goes on from there.
    Stopped(CpuId, Stop),
    /// The processor ended its run where it did not when the tape was made: this is another machine.
    Diverged(CpuId, Stop),
}

impl<'a> Playback<'a> {
    /// Plays the tape from its beginning, for a machine as it was there.
    #[must_use]
    pub fn new(tape: &'a Tape) -> Self {
        Self { tape, next: 0 }
    }

    /// The inputs that have not come in yet; the first may have in part.
    #[must_use]
    pub fn left(&self) -> &'a [Input] {
        &self.tape.inputs[self.next..]
    }

    /// Plays on until something in `until` happens, or to the end. Instructions of all processors count
    /// together.
    pub fn go(&mut self, machine: &mut Machine, until: &StopSet, events: &mut Events) -> Played {
        let mut left = until.instructions;
        while let Some(input) = self.tape.inputs.get(self.next) {
            let &Input::Run { cpu, to } = input else {
                machine.take_input(input, events);
                self.next += 1;
                continue;
            };
            let before = machine.cpu(cpu).executed;
            let until = StopSet { instructions: left, ..until.clone() };
            let stop = machine.run_to(cpu, to, &until, events);
            let executed = machine.cpu(cpu).executed;
            left = left.map(|left| left - (executed - before));
            let there = (executed, machine.taken(cpu)) == (to.executed, to.taken);
            match stop {
                Stop::Budget if there => self.next += 1,
                // What ends every run ended this one too, when the tape was made.
                stop if there && ends_every_run(&stop) => self.next += 1,
                stop if executed > to.executed || ends_every_run(&stop) => {
                    return Played::Diverged(cpu, stop);
                }
                stop => return Played::Stopped(cpu, stop),
            }
        }
        Played::End
    }
}

fn ends_every_run(stop: &Stop) -> bool {
    matches!(
        stop,
        Stop::Halt
            | Stop::NotStarted
            | Stop::Unsupported(_)
            | Stop::TripleFault
            | Stop::PowerOff
            | Stop::Exit { .. }
            | Stop::Reset
    )
}

impl Machine {
    /// Keeps what comes in from now on.
    pub fn record(&mut self) {
        self.tape = Some(Box::default());
    }

    /// What came in since [`Machine::record`] was called.
    #[must_use]
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_deref()
    }

    /// Ends what [`Machine::record`] began, and gives what came in.
    pub fn take_tape(&mut self) -> Option<Tape> {
        self.tape.take().map(|tape| *tape)
    }

    fn on_tape(&mut self, input: impl FnOnce() -> Input) {
        if let Some(tape) = &mut self.tape {
            tape.push(input());
        }
    }

    /// Applies an input of a tape.
    fn take_input(&mut self, input: &Input, events: &mut Events) {
        match input {
            Input::Run { .. } => unreachable!("runs are played by their playback"),
            Input::Timers(mode) => self.set_timer_mode(*mode),
            Input::Tick(cpu) => {
                self.raise_timer(*cpu);
            }
            Input::Expire(cpu) => {
                self.expire(*cpu);
            }
            Input::HoldMessages(held) => self.hold_messages(*held),
            Input::Arrive { cpu, vector } => {
                self.arrive(*cpu, *vector);
            }
            Input::Sleep => {
                self.sleep();
            }
            Input::Inject { cpu, vector } => {
                self.inject(*cpu, *vector, events);
            }
            Input::Refuse { cpu, status } => {
                self.refuse_transaction(*cpu, *status, events);
            }
            Input::Suspend(cpu) => {
                self.suspend_transaction(*cpu);
            }
            Input::Resume { cpu, transaction } => {
                self.resume_transaction(*cpu, *transaction);
            }
            Input::Serial(bytes) => self.serial_input(bytes),
            Input::Text(text) => {
                self.type_text(text);
            }
            Input::Key(key) => self.press_key(*key),
            Input::Write { at, bytes } => self.write_phys(*at, bytes),
        }
    }

    /// Sets what decides when timers expire.
    pub fn set_timer_mode(&mut self, mode: TimerMode) {
        self.on_tape(|| Input::Timers(mode));
        self.board.set_timer_mode(self.instructions(), mode);
    }

    /// Lets the timer that interrupts this processor tick now, as if its time had come. `None`: it has none.
    pub fn raise_timer(&mut self, cpu: CpuId) -> Option<TimerSource> {
        self.on_tape(|| Input::Tick(cpu));
        self.board.raise_timer(self.instructions(), cpu)
    }

    /// Lets time pass until the timer that interrupts this processor expires, unless it has already, and
    /// raises the interrupt. No other timer does anything, however late it is: with held timers, the caller
    /// decides which is next. `None`: the processor has no timer that will expire.
    pub fn expire(&mut self, cpu: CpuId) -> Option<TimerSource> {
        self.on_tape(|| Input::Expire(cpu));
        let expiry = self.board.expiry(cpu)?;
        self.pass_until(expiry);
        self.board.expire(self.instructions(), cpu)
    }

    /// Holds interrupts between processors until [`Machine::arrive`], or no longer: then those in transit
    /// arrive.
    pub fn hold_messages(&mut self, held: bool) {
        self.on_tape(|| Input::HoldMessages(held));
        self.board.hold_messages(held);
    }

    /// Lets an interrupt in transit arrive at its processor, which takes it when it can. False: there is none
    /// of this vector.
    pub fn arrive(&mut self, cpu: CpuId, vector: u8) -> bool {
        self.on_tape(|| Input::Arrive { cpu, vector });
        self.board.arrive(cpu, vector)
    }

    /// Lets time pass until the next event of a chip. While the timers are controlled a halted processor does
    /// not let it pass by itself: whoever controls them says when nothing else is to be done. False: no chip
    /// has anything to do.
    pub fn sleep(&mut self) -> bool {
        self.on_tape(|| Input::Sleep);
        let Some(event) = self.board.next_event() else { return false };
        self.pass_until(event);
        self.board.advance(self.instructions());
        true
    }

    /// Makes the processor take an interrupt now, before its next instruction, whatever its flags say: ask
    /// [`Machine::can_interrupt`] first. A stop is returned if it could not be delivered.
    pub fn inject(&mut self, cpu: CpuId, vector: u8, events: &mut Events) -> Option<Stop> {
        self.on_tape(|| Input::Inject { cpu, vector });
        self.deliver(cpu, vector, events)
    }

    /// Aborts at once the transaction that the processor is about to begin ([`Stop::TransactionBegin`]): the
    /// next instruction is the first of the fallback, with this status in EAX.
    pub fn refuse_transaction(&mut self, cpu: CpuId, status: u32, events: &mut Events) {
        self.on_tape(|| Input::Refuse { cpu, status });
        self.refuse(cpu, status, events);
    }

    /// Takes the transaction out of its processor, which goes on outside of it. Accesses that conflict with
    /// it abort it. Returns a name for [`Machine::resume_transaction`]; `None` if the processor is in none.
    pub fn suspend_transaction(&mut self, cpu: CpuId) -> Option<u32> {
        self.on_tape(|| Input::Suspend(cpu));
        self.take_transaction(cpu)
    }

    /// A suspended transaction goes on. The processor must stand where it stood when the transaction was
    /// taken out, with the same registers; if the transaction was aborted meanwhile, the fallback is next.
    /// False if there is none of that name, or the processor is in another one.
    pub fn resume_transaction(&mut self, cpu: CpuId, transaction: u32) -> bool {
        self.on_tape(|| Input::Resume { cpu, transaction });
        self.put_transaction(cpu, transaction)
    }

    /// Feeds bytes into the first serial port.
    pub fn serial_input(&mut self, bytes: &[u8]) {
        self.on_tape(|| Input::Serial(bytes.to_vec()));
        self.board.serial_input(self.instructions(), bytes);
    }

    /// Types a text on the keyboard. The characters that have no key on a US layout come back.
    pub fn type_text(&mut self, text: &str) -> Vec<char> {
        self.on_tape(|| Input::Text(text.to_owned()));
        self.board.type_text(self.instructions(), text)
    }

    /// Presses a key.
    pub fn press_key(&mut self, key: Key) {
        self.on_tape(|| Input::Key(key));
        self.board.press_key(self.instructions(), key);
    }

    /// Writes memory as a device would.
    pub fn write_phys(&mut self, at: PhysAddr, bytes: &[u8]) {
        self.on_tape(|| Input::Write { at, bytes: bytes.to_vec() });
        self.memory.write(at, bytes);
    }
}

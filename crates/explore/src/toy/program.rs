//! The instructions of a toy program, and their text form.
//!
//! A program that begins with `hands` has a kernel that hands the processor over. One that begins with `cpus` runs on processors instead of threads, one with `tso` on processors
//! whose stores go through store buffers, one with `tso-threads` on threads that have such. On processors
//! parts that begin with `irq1@0` are the handlers of interrupts, here of vector 1 on cpu0.

use std::fmt;
use std::str::FromStr;
use trace::Actor;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Instr {
    /// register = variable
    Read(u8),
    /// variable = value
    Write(u8, u8),
    /// variable = register + 1
    Store(u8),
    /// variable += 1 and register = variable, at once
    Add(u8),
    /// Skips so many instructions unless register = value.
    SkipUnless(u8, u8),
    /// A preemption point if the set names line `toy:N`.
    Point(u8),
    Lock(u8),
    /// register = whether it got the lock
    TryLock(u8),
    Unlock(u8),
    Yield,
    /// Semaphores, with hand-over to the one that waits longest.
    Wait(u8),
    Signal(u8),
    /// Waits until variable = value, woken by any write to it.
    Spin(u8, u8),
    /// Waits until one of the two is not 0, then register = the first of them.
    SpinEither(u8, u8),
    Create(u8),
    Join(u8),
    Alloc(u8),
    Free(u8),
    /// Reads from a block, which must not be freed.
    Use(u8),
    /// register = value, or panic
    Assert(u8),
    /// Interrupts off. Until they are on again or the thread gives way, no other thread can be chosen. A
    /// processor takes no interrupts meanwhile.
    Off,
    On,
    /// Goes over to the next thread that can run, within the step.
    GoOver,
    /// The test is over, whoever could still run.
    End,
    /// register = how many steps there have been: what the scheduler changes whenever somebody is chosen,
    /// unguarded
    Peek,
    /// register = any number up to this one
    Coin(u8),
    /// register = 0, or perhaps 1 if the variable is not 0
    Maybe(u8),
    /// Begins a transaction of so many instructions, after which so many are skipped; or skips the former,
    /// with register = 1.
    Begin(u8, u8),
    /// Makes an interrupt pending, by the number of its handler.
    Send(u8),
    /// Waits until an interrupt has been handled on this processor.
    Halt,
    /// Waits until the store buffer of this processor is empty.
    Fence,
    /// Sets the register of the processor that was interrupted to 1.
    Poke,
}

/// What the bodies of a program run on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Kind {
    #[default]
    Threads,
    /// Threads of a kernel that goes over to the next one, within the step, where one has to wait or ends. That
    /// one runs up to where interrupts are on, which is at once unless it waited with interrupts off. Whoever is
    /// chosen does the same, and if it has done anything by then its step ends there.
    HandingOver,
    /// Threads whose transactions are preempted inside and rolled back; otherwise a transaction is one step.
    Speculating,
    Cpus,
    /// Processors with store buffers.
    Buffered,
    /// Threads with store buffers, as if each had a processor to itself. What was stored in one step drains
    /// in one step. A step that stored, or one after it, ends before an instruction that needs the buffer to
    /// be empty; what is done to blocks empties it instead.
    BufferedThreads,
}

impl Kind {
    /// Whether stores wait in buffers.
    #[must_use]
    pub const fn has_buffers(self) -> bool {
        matches!(self, Self::Buffered | Self::BufferedThreads)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Handler {
    pub cpu: u8,
    pub vector: u8,
    pub body: Vec<Instr>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Program {
    pub kind: Kind,
    /// The instructions of each thread or processor.
    pub threads: Vec<Vec<Instr>>,
    pub handlers: Vec<Handler>,
}

impl Program {
    /// All instructions, those of handlers too.
    pub fn instructions(&self) -> impl Iterator<Item = Instr> + '_ {
        self.threads.iter().chain(self.handlers.iter().map(|handler| &handler.body)).flatten().copied()
    }
}

impl fmt::Display for Instr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instr::Read(n) => write!(f, "read{n}"),
            Instr::Write(n, value) => write!(f, "write{n}={value}"),
            Instr::Store(n) => write!(f, "store{n}"),
            Instr::Add(n) => write!(f, "add{n}"),
            Instr::SkipUnless(value, count) => write!(f, "unless{value}skip{count}"),
            Instr::Point(n) => write!(f, "point{n}"),
            Instr::Lock(n) => write!(f, "lock{n}"),
            Instr::TryLock(n) => write!(f, "try{n}"),
            Instr::Unlock(n) => write!(f, "unlock{n}"),
            Instr::Yield => write!(f, "yield"),
            Instr::Wait(n) => write!(f, "wait{n}"),
            Instr::Signal(n) => write!(f, "signal{n}"),
            Instr::Spin(n, value) => write!(f, "spin{n}={value}"),
            Instr::SpinEither(a, b) => write!(f, "spin{a}or{b}"),
            Instr::Create(n) => write!(f, "create{n}"),
            Instr::Join(n) => write!(f, "join{n}"),
            Instr::Alloc(n) => write!(f, "alloc{n}"),
            Instr::Free(n) => write!(f, "free{n}"),
            Instr::Use(n) => write!(f, "use{n}"),
            Instr::Assert(n) => write!(f, "assert{n}"),
            Instr::Off => write!(f, "off"),
            Instr::On => write!(f, "on"),
            Instr::GoOver => write!(f, "goover"),
            Instr::End => write!(f, "end"),
            Instr::Peek => write!(f, "peek"),
            Instr::Coin(n) => write!(f, "coin{n}"),
            Instr::Maybe(n) => write!(f, "maybe{n}"),
            Instr::Begin(body, fallback) => write!(f, "tx{body}else{fallback}"),
            Instr::Send(n) => write!(f, "send{n}"),
            Instr::Halt => write!(f, "halt"),
            Instr::Fence => write!(f, "fence"),
            Instr::Poke => write!(f, "poke"),
        }
    }
}

impl FromStr for Instr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse::<u8>().map_err(|error| format!("{text}: {error}")));
        let mut number = || numbers.next().unwrap_or_else(|| Err(format!("{text}: a number is missing")));
        let name: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        Ok(match name.as_str() {
            "read" => Instr::Read(number()?),
            "write=" => Instr::Write(number()?, number()?),
            "store" => Instr::Store(number()?),
            "add" => Instr::Add(number()?),
            "unlessskip" => Instr::SkipUnless(number()?, number()?),
            "point" => Instr::Point(number()?),
            "lock" => Instr::Lock(number()?),
            "try" => Instr::TryLock(number()?),
            "unlock" => Instr::Unlock(number()?),
            "yield" => Instr::Yield,
            "wait" => Instr::Wait(number()?),
            "signal" => Instr::Signal(number()?),
            "spin=" => Instr::Spin(number()?, number()?),
            "spinor" => Instr::SpinEither(number()?, number()?),
            "create" => Instr::Create(number()?),
            "join" => Instr::Join(number()?),
            "alloc" => Instr::Alloc(number()?),
            "free" => Instr::Free(number()?),
            "use" => Instr::Use(number()?),
            "assert" => Instr::Assert(number()?),
            "off" => Instr::Off,
            "on" => Instr::On,
            "goover" => Instr::GoOver,
            "end" => Instr::End,
            "peek" => Instr::Peek,
            "coin" => Instr::Coin(number()?),
            "maybe" => Instr::Maybe(number()?),
            "txelse" => Instr::Begin(number()?, number()?),
            "send" => Instr::Send(number()?),
            "halt" => Instr::Halt,
            "fence" => Instr::Fence,
            "poke" => Instr::Poke,
            _ => return Err(format!("{text} is no instruction")),
        })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Threads => "",
            Kind::HandingOver => "hands ",
            Kind::Speculating => "real ",
            Kind::Cpus => "cpus ",
            Kind::Buffered => "tso ",
            Kind::BufferedThreads => "tso-threads ",
        })?;
        let words = |body: &[Instr]| body.iter().map(Instr::to_string).collect::<Vec<_>>().join(" ");
        let threads = self.threads.iter().map(|thread| words(thread));
        let handlers = self
            .handlers
            .iter()
            .map(|Handler { cpu, vector, body }| format!("irq{vector}@{cpu} {}", words(body)));
        f.write_str(&threads.chain(handlers).collect::<Vec<_>>().join(" | "))
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut program = Self::default();
        let mut words = text.split_whitespace().peekable();
        program.kind = match words.peek() {
            Some(&"hands") => Kind::HandingOver,
            Some(&"real") => Kind::Speculating,
            Some(&"cpus") => Kind::Cpus,
            Some(&"tso") => Kind::Buffered,
            Some(&"tso-threads") => Kind::BufferedThreads,
            _ => Kind::Threads,
        };
        if program.kind != Kind::Threads {
            words.next();
        }
        let words: Vec<&str> = words.collect();
        for part in words.split(|&word| word == "|") {
            let body = |words: &[&str]| {
                words.iter().map(|word| word.parse()).collect::<Result<Vec<Instr>, String>>()
            };
            match part.first().and_then(|word| word.parse().ok()) {
                Some(Actor::Interrupt { cpu, vector }) => {
                    program.handlers.push(Handler { cpu: cpu.0, vector, body: body(&part[1..])? });
                }
                _ => program.threads.push(body(part)?),
            }
        }
        let cpus = if program.kind.has_threads() { 0 } else { program.threads.len() };
        match program.handlers.iter().find(|handler| usize::from(handler.cpu) >= cpus) {
            Some(Handler { cpu, vector, .. }) => Err(format!("irq{vector}@{cpu}: there is no cpu{cpu}")),
            None => Ok(program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_parses_back() {
        let text = "read0 write1=2 store0 add1 unless1skip2 point3 lock0 try1 unlock0 yield | wait0 signal0 \
                    spin0=1 spin0or1 create2 join0 alloc0 free0 | use0 assert1 off on goover end peek";
        assert_eq!(text.parse::<Program>().unwrap().to_string(), text);
        for text in [
            "cpus coin2 maybe0 halt | send0 | irq1@0 poke add0 | irq2@1 read0",
            "tso write0=1 fence read1 | write1=1",
            "tso-threads write0=1 fence read1 | write1=1",
            "hands off wait0 add0 on | signal0",
        ] {
            assert_eq!(text.parse::<Program>().unwrap().to_string(), text);
        }
        assert!("cpus add0 | irq1@1 add0".parse::<Program>().is_err());
        assert!("add0 | irq1@0 add0".parse::<Program>().is_err());
        assert!("raed0".parse::<Program>().is_err());
        assert!("read".parse::<Program>().is_err());
    }
}

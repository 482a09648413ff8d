//! The instructions of a toy program, and their text form.

use std::fmt;
use std::str::FromStr;

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
    /// Interrupts off: until they are on again or the thread gives way, nobody else can be chosen.
    Off,
    On,
    /// Goes over to the next thread that can run, within the step.
    GoOver,
    /// The test is over, whoever could still run.
    End,
    /// register = how many steps there have been: what the scheduler changes whenever somebody is chosen, unguarded
    Peek,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Program {
    pub threads: Vec<Vec<Instr>>,
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
            _ => return Err(format!("{text} is no instruction")),
        })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, thread) in self.threads.iter().enumerate() {
            if at > 0 {
                f.write_str(" | ")?;
            }
            let words: Vec<_> = thread.iter().map(Instr::to_string).collect();
            f.write_str(&words.join(" "))?;
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let thread = |part: &str| part.split_whitespace().map(str::parse).collect();
        Ok(Self { threads: text.split('|').map(thread).collect::<Result<_, _>>()? })
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
        assert!("raed0".parse::<Program>().is_err());
        assert!("read".parse::<Program>().is_err());
    }
}

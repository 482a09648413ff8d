//! A decision of the explorer, and a list of them: the reproduction of an execution.
//!
//! Text form: choices separated by blanks, a run of equal ones as `t3*5`. `t3` lets thread 3 go on, `cpu1` steps a
//! processor, `irq32@0` takes an interrupt on cpu0, `=1` settles an outcome (1st alternative of an allocation, a
//! transaction's abort code). `#` starts a comment that reaches to the end of the line.

use crate::{CpuId, ThreadId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Choice {
    /// Let this thread run to the next point.
    Thread(ThreadId),
    /// Let this processor run to the next point.
    Cpu(CpuId),
    /// Take interrupt `vector` on `cpu` now.
    Interrupt { cpu: CpuId, vector: u8 },
    /// Which way something undetermined goes, as a number that the subject explains.
    Outcome(u8),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Thread(thread) => write!(f, "{thread}"),
            Choice::Cpu(cpu) => write!(f, "{cpu}"),
            Choice::Interrupt { cpu, vector } => write!(f, "irq{vector}@{}", cpu.0),
            Choice::Outcome(way) => write!(f, "={way}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseScheduleError(pub String);

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a choice: expected t3, cpu1, irq32@0 or =1, each perhaps followed by *COUNT",
            self.0
        )
    }
}

impl std::error::Error for ParseScheduleError {}

impl FromStr for Choice {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| digits.parse::<u32>().ok();
        let byte = |digits: &str| digits.parse::<u8>().ok();
        let choice = if let Some(rest) = text.strip_prefix("cpu") {
            byte(rest).map(|n| Choice::Cpu(CpuId(n)))
        } else if let Some(rest) = text.strip_prefix("irq") {
            rest.split_once('@').and_then(|(vector, cpu)| {
                Some(Choice::Interrupt { cpu: CpuId(byte(cpu)?), vector: byte(vector)? })
            })
        } else if let Some(rest) = text.strip_prefix('t') {
            number(rest).map(|n| Choice::Thread(ThreadId(n)))
        } else if let Some(rest) = text.strip_prefix('=') {
            byte(rest).map(Choice::Outcome)
        } else {
            None
        };
        choice.ok_or_else(|| ParseScheduleError(text.to_string()))
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Schedule(pub Vec<Choice>);

/// A schedule longer than this is refused when read from text: no execution of ours has so many decisions.
const CHOICES_MAX: usize = 1 << 24;

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|a, b| a == b).enumerate() {
            let blank = if at == 0 { "" } else { " " };
            match run.len() {
                1 => write!(f, "{blank}{}", run[0])?,
                count => write!(f, "{blank}{}*{count}", run[0])?,
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut choices = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("");
            for word in line.split_whitespace() {
                let error = || ParseScheduleError(word.to_string());
                let (choice, count) = match word.split_once('*') {
                    Some((choice, count)) => (choice.parse()?, count.parse::<usize>().map_err(|_| error())?),
                    None => (word.parse()?, 1),
                };
                if count > CHOICES_MAX - choices.len() {
                    return Err(error());
                }
                choices.resize(choices.len() + count, choice);
            }
        }
        Ok(Self(choices))
    }
}

macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Choice, Schedule);
pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_parses_back() {
        for text in ["", "t3", "t3*2 t4 t3", "cpu1 irq32@0 =1*3"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        assert_eq!("t1 t1 # then the other\n t2".parse::<Schedule>().unwrap().to_string(), "t1*2 t2");
    }

    #[test]
    fn wrong_words_are_named() {
        for text in ["x", "t", "t-1", "irq3", "cpu999", "t1*", "t1*99999999999", "t1*999999999"] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains('\''), "{error}");
        }
    }
}

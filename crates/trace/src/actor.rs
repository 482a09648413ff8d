//! Who can be let go on: what the explorer's choices are about.
//!
//! An actor is a thread of a kernel on one processor, or a processor, or an interrupt that is taken on a
//! processor and then handled, or the store buffer of a processor, which writes its oldest store to memory,
//! or that of a thread, which runs as if it had a processor to itself.
//!
//! Text form: `t3`, `cpu1`, `irq32@0` (vector 32 on cpu0), `buf1` (the store buffer of cpu1), `buft3` (that
//! of t3).

use crate::choice::serde_as_text_or_numbers;
use crate::set::SortedSet;
use crate::{CpuId, ThreadId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Actor {
    Thread(ThreadId),
    Cpu(CpuId),
    /// Takes interrupt `vector` on `cpu` and handles it. Until it is handled, the processor itself cannot be
    /// chosen.
    Interrupt {
        cpu: CpuId,
        vector: u8,
    },
    /// The store buffer of a processor. Each of its steps writes the oldest store to memory.
    Buffer(CpuId),
    /// The store buffer of a thread, which runs as if it had a processor to itself.
    ThreadBuffer(ThreadId),
}

/// A set of actors in ascending order.
pub type ActorSet = SortedSet<Actor>;

impl Actor {
    /// The processor that the actor runs on or belongs to, where that is known.
    #[must_use]
    pub const fn cpu(self) -> Option<CpuId> {
        match self {
            Actor::Thread(_) | Actor::ThreadBuffer(_) => None,
            Actor::Cpu(cpu) | Actor::Interrupt { cpu, .. } | Actor::Buffer(cpu) => Some(cpu),
        }
    }

    /// Where its stores wait, if there are store buffers.
    #[must_use]
    pub const fn buffer(self) -> Option<Actor> {
        match self {
            Actor::Thread(thread) => Some(Actor::ThreadBuffer(thread)),
            Actor::Cpu(cpu) | Actor::Interrupt { cpu, .. } => Some(Actor::Buffer(cpu)),
            Actor::Buffer(_) | Actor::ThreadBuffer(_) => None,
        }
    }

    #[must_use]
    pub const fn is_buffer(self) -> bool {
        matches!(self, Actor::Buffer(_) | Actor::ThreadBuffer(_))
    }

    /// Whether choosing this actor takes the processor away from `current`, which could have gone on.
    ///
    /// Choosing another thread or another processor does. So does an interrupt that comes while its
    /// processor, or another one, could go on: the moment is the explorer's to pick, and a bound that did not
    /// count it would have to try all of them at once. A store buffer that drains takes nothing from anybody:
    /// if it counted, an execution in which each store is seen at once would need as many preemptions as it
    /// has stores.
    #[must_use]
    pub fn preempts(self, current: Option<Actor>) -> bool {
        !self.is_buffer() && current.is_some_and(|current| current != self)
    }
}

impl From<ThreadId> for Actor {
    fn from(thread: ThreadId) -> Self {
        Actor::Thread(thread)
    }
}

impl From<Actor> for (u8, u32, u8) {
    fn from(actor: Actor) -> Self {
        match actor {
            Actor::Thread(thread) => (0, thread.0, 0),
            Actor::Cpu(cpu) => (1, cpu.0.into(), 0),
            Actor::Interrupt { cpu, vector } => (2, cpu.0.into(), vector),
            Actor::Buffer(cpu) => (3, cpu.0.into(), 0),
            Actor::ThreadBuffer(thread) => (4, thread.0, 0),
        }
    }
}

impl TryFrom<(u8, u32, u8)> for Actor {
    type Error = &'static str;

    fn try_from((kind, number, vector): (u8, u32, u8)) -> Result<Self, Self::Error> {
        let cpu = u8::try_from(number).map(CpuId).map_err(|_| "no processor has this number");
        match kind {
            0 => Ok(Actor::Thread(ThreadId(number))),
            1 => cpu.map(Actor::Cpu),
            2 => Ok(Actor::Interrupt { cpu: cpu?, vector }),
            3 => cpu.map(Actor::Buffer),
            4 => Ok(Actor::ThreadBuffer(ThreadId(number))),
            _ => Err("no kind of actor"),
        }
    }
}

impl From<CpuId> for Actor {
    fn from(cpu: CpuId) -> Self {
        Actor::Cpu(cpu)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Thread(thread) => write!(f, "{thread}"),
            Actor::Cpu(cpu) => write!(f, "{cpu}"),
            Actor::Interrupt { cpu, vector } => write!(f, "irq{vector}@{}", cpu.0),
            Actor::Buffer(cpu) => write!(f, "buf{}", cpu.0),
            Actor::ThreadBuffer(thread) => write!(f, "buf{thread}"),
        }
    }
}

/// The error for text that names no actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseActorError(pub String);

impl fmt::Display for ParseActorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not an actor: expected t3, cpu1, irq32@0, buf1 or buft3", self.0)
    }
}

impl std::error::Error for ParseActorError {}

impl FromStr for Actor {
    type Err = ParseActorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cpu = |digits: &str| digits.parse().ok().map(CpuId);
        let thread = |text: &str| text.strip_prefix('t').and_then(|rest| rest.parse().ok()).map(ThreadId);
        let actor = if let Some(rest) = text.strip_prefix("cpu") {
            cpu(rest).map(Actor::Cpu)
        } else if let Some(rest) = text.strip_prefix("irq") {
            rest.split_once('@').and_then(|(vector, at)| {
                Some(Actor::Interrupt { cpu: cpu(at)?, vector: vector.parse().ok()? })
            })
        } else if let Some(rest) = text.strip_prefix("buf") {
            thread(rest).map(Actor::ThreadBuffer).or_else(|| cpu(rest).map(Actor::Buffer))
        } else {
            thread(text).map(Actor::Thread)
        };
        actor.ok_or_else(|| ParseActorError(text.to_string()))
    }
}

serde_as_text_or_numbers!(Actor, (u8, u32, u8));

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(text: &str) -> Actor {
        text.parse().unwrap()
    }

    #[test]
    fn text_form_parses_back() {
        for text in ["t3", "cpu1", "irq32@0", "buf1", "buft3"] {
            assert_eq!(actor(text).to_string(), text);
        }
        for text in ["", "x", "t", "t-1", "t3=1", "irq3", "irq@1", "cpu999", "buf", "buft"] {
            assert!(text.parse::<Actor>().unwrap_err().to_string().contains(&format!("'{text}'")));
        }
    }

    #[test]
    fn who_preempts_whom() {
        for (chosen, current, expected) in [
            ("t1", None, false),
            ("t1", Some("t1"), false),
            ("t2", Some("t1"), true),
            ("cpu1", Some("cpu0"), true),
            ("irq32@0", Some("cpu0"), true),
            ("irq32@0", Some("irq32@0"), false),
            ("irq32@0", None, false),
            ("cpu1", Some("irq32@0"), true),
            ("buf0", Some("cpu0"), false),
            ("buf1", Some("cpu0"), false),
            ("buft2", Some("t1"), false),
        ] {
            let preempts = actor(chosen).preempts(current.map(actor));
            assert_eq!(preempts, expected, "{chosen} while {current:?} could go on");
        }
    }
}

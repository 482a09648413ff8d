//! A decision of the explorer, and a list of them: the reproduction of an execution.
//!
//! Text form: choices separated by blanks, a run of equal ones as `t3*5`. A choice is an actor ([`Actor`])
//! and, unless it is the ordinary one, the outcome of its step: `t3` lets thread 3 go on, `t3=2` does too,
//! and whatever is undetermined in its step (an allocation that may fail, the abort code of a transaction)
//! goes the second of its other ways. `#` starts a comment that reaches to the end of the line.

use crate::set::SortedSet;
use crate::{Actor, CpuId, ThreadId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who goes on, and which way what is undetermined in its step goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Choice {
    pub actor: Actor,
    /// A number that the subject explains; 0 is the ordinary way.
    pub outcome: u8,
}

impl<A: Into<Actor>> From<A> for Choice {
    fn from(actor: A) -> Self {
        Self { actor: actor.into(), outcome: 0 }
    }
}

impl From<Choice> for (Actor, u8) {
    fn from(choice: Choice) -> Self {
        (choice.actor, choice.outcome)
    }
}

impl From<(Actor, u8)> for Choice {
    fn from((actor, outcome): (Actor, u8)) -> Self {
        Self { actor, outcome }
    }
}

impl Choice {
    /// The thread that goes on, if the choice is about one.
    #[must_use]
    pub const fn thread(self) -> Option<ThreadId> {
        match self.actor {
            Actor::Thread(thread) => Some(thread),
            _ => None,
        }
    }

    /// The processor that goes on, if the choice is about one.
    #[must_use]
    pub const fn cpu(self) -> Option<CpuId> {
        match self.actor {
            Actor::Cpu(cpu) => Some(cpu),
            _ => None,
        }
    }
}

/// What can be chosen, ascending by actor and then by outcome.
pub type ChoiceSet = SortedSet<Choice>;

impl ChoiceSet {
    /// The choices of one actor.
    pub fn of(&self, actor: Actor) -> impl Iterator<Item = Choice> + '_ {
        let all = self.as_slice();
        let from = all.partition_point(|choice| choice.actor < actor);
        all[from..].iter().copied().take_while(move |choice| choice.actor == actor)
    }

    /// Whether the actor can be chosen, with whichever outcome.
    #[must_use]
    pub fn contains_actor(&self, actor: Actor) -> bool {
        self.of(actor).next().is_some()
    }

    /// The actors that can be chosen, each once, in ascending order.
    pub fn actors(&self) -> impl Iterator<Item = Actor> + '_ {
        self.as_slice().chunk_by(|a, b| a.actor == b.actor).map(|choices| choices[0].actor)
    }

    /// The only actor that can be chosen, if there is exactly one.
    #[must_use]
    pub fn only_actor(&self) -> Option<Actor> {
        let (first, last) = (self.first()?.actor, self.last()?.actor);
        (first == last).then_some(first)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.actor)?;
        if self.outcome != 0 {
            write!(f, "={}", self.outcome)?;
        }
        Ok(())
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseScheduleError(pub String);

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a choice: expected t3, cpu1, irq32@0, buf1 or buft3, each perhaps followed by =OUTCOME and *COUNT",
            self.0
        )
    }
}

impl std::error::Error for ParseScheduleError {}

impl FromStr for Choice {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseScheduleError(text.to_string());
        let (actor, outcome) = match text.split_once('=') {
            Some((actor, outcome)) => (actor, outcome.parse().map_err(|_| error())?),
            None => (text, 0),
        };
        Ok(Self { actor: actor.parse().map_err(|_| error())?, outcome })
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

/// Text for people, numbers for what only machines read: a search that is put aside has hundreds of thousands
/// of choices.
macro_rules! serde_as_text_or_numbers {
    ($name:ty, $numbers:ty) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match serializer.is_human_readable() {
                    true => serializer.collect_str(self),
                    false => <$numbers>::from(*self).serialize(serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                use serde::de::Error as _;
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    return text.parse().map_err(D::Error::custom);
                }
                <$numbers>::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
            }
        }
    };
}
serde_as_text!(Schedule);
serde_as_text_or_numbers!(Choice, (Actor, u8));
pub(crate) use serde_as_text;
pub(crate) use serde_as_text_or_numbers;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_parses_back() {
        for text in ["", "t3", "t3*2 t4 t3", "cpu1 irq32@0 t4=1*3 buf1 cpu0=2"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        assert_eq!("t1 t1 # then the other\n t2".parse::<Schedule>().unwrap().to_string(), "t1*2 t2");
    }

    #[test]
    fn choices_are_grouped_by_actor() {
        let enabled: ChoiceSet = "cpu1 t2=1 t2 t10".parse::<Schedule>().unwrap().0.into_iter().collect();
        let actors: Vec<String> = enabled.actors().map(|actor| actor.to_string()).collect();
        assert_eq!(actors, ["t2", "t10", "cpu1"]);
        let of = |thread: u32| enabled.of(ThreadId(thread).into()).map(|c| c.outcome).collect::<Vec<_>>();
        assert_eq!((of(2), of(10), of(11)), (vec![0, 1], vec![0], vec![]));
        assert_eq!(enabled.only_actor(), None);
        assert_eq!(
            enabled.of(ThreadId(2).into()).collect::<ChoiceSet>().only_actor(),
            Some(ThreadId(2).into())
        );
    }

    #[test]
    fn wrong_words_are_named() {
        for text in [
            "x",
            "t",
            "t-1",
            "=1",
            "t1=",
            "t1=300",
            "irq3",
            "cpu999",
            "t1*",
            "t1*99999999999",
            "t1*999999999",
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains('\''), "{error}");
        }
    }
}

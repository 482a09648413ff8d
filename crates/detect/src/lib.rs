//! What is wrong with an execution: one file per bug class, each a small plain struct that consumes
//! [`trace::Step`]s.
//!
//! Contract: a detector is a value. Cloning it is cheap (small structures, histories behind `Arc` and copied
//! on the first write after a clone), because the whole set is cloned with the subject at every preemption
//! point. Its findings depend on the steps alone and not on whether they are narrated: a stack only adds
//! words to a [`Finding`], never to its [`Signature`].
//!
//! A [`Race`] is not a bug by itself and therefore a type of its own.
//!
//! This crate knows no CPU, no file and no layout of text.

mod check;
mod clocks;
mod console;
mod context;
mod deadlock;
mod detectors;
mod facts;
mod fasttrack;
mod fault;
mod finding;
mod flags;
mod heap;
mod held;
mod leak;
#[cfg(any(test, feature = "cases"))]
pub mod litmus;
mod lockdep;
mod lockset;
mod no_progress;
mod panic;
mod past;
mod race;
mod race_limited;
mod race_processors;
mod race_pure;
mod race_words;
mod reentry;
#[cfg(any(test, feature = "cases"))]
mod script;
mod shadow;
mod sync_preserving;
mod use_after_free;

pub use check::Check;
pub use console::{Console, Pattern};
pub use context::Path;
pub use deadlock::Deadlock;
pub use detectors::{Config, Detectors};
pub use fasttrack::{Atomics, FastTrack};
pub use fault::Fault;
pub use finding::{Block, Finding, FindingKind, LockClass, LockRule, Role, Side, Signature, Wait};
pub use flags::Flags;
pub use held::{Held, INTERRUPTS, TRANSACTION};
pub use leak::Leak;
pub use lockdep::Lockdep;
#[cfg(any(test, feature = "cases"))]
pub use lockdep::selftest;
pub use lockset::Lockset;
pub use no_progress::{Constants, Limits, NoProgress, Progress};
pub use panic::Panic;
pub use race::{Candidate, Order, Race, RaceDetector, RaceKey, RaceLog, RaceObserver, RaceSide, RaceStatus};
pub use race_limited::RaceLimited;
pub use race_processors::{Asked, ProcessorRaces};
pub use race_pure::RacePure;
pub use race_words::RaceWords;
pub use reentry::Reentry;
pub use sync_preserving::SyncPreserving;
pub use use_after_free::UseAfterFree;

/// A small program whose verdict is known, for tables: what it shows, what is expected, and what was found.
#[cfg(any(test, feature = "cases"))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub what: &'static str,
    pub expected: String,
    pub found: String,
}

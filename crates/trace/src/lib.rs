//! The vocabulary of Rockfall: what happened (`Access`, `Action`, `Step`), where one may interfere (`Point`,
//! `PointSet`), who acts (`Actor`) and what was decided (`Choice`, `Schedule`), and the two traits through
//! which the rest of the tool talks: [`Subject`], something that can be stepped and cloned, and [`Resolve`],
//! which turns an address into words.
//!
//! Contract: plain data only. Every value that a person may meet has a text form that parses back to itself.
//! This crate knows no CPU, no kernel and no algorithm.

pub mod access;
pub mod action;
pub mod actor;
pub mod address;
pub mod choice;
pub mod exception;
pub mod ids;
pub mod point;
pub mod resolve;
pub mod set;
pub mod step;
pub mod subject;
pub mod touched;
pub mod words;

pub use access::{Access, AccessKind};
pub use action::{Action, Event, InterruptKind, Taking, Trusted, WaitKind, Waiting};
pub use actor::{Actor, ActorSet};
pub use address::{PhysAddr, VirtAddr};
pub use choice::{Choice, ChoiceSet, ParseScheduleError, Schedule};
pub use exception::Exception;
pub use ids::{CpuId, LockId, ThreadId, ThreadSet};
pub use point::{Filter, ParsePointError, Point, PointKind, PointRule, PointSet};
pub use resolve::{Frame, Resolve, Stack};
pub use set::SortedSet;
pub use step::{Occurrence, Pointer, Remark, Sighting, Step, StepEnd};
pub use subject::{Cancelled, Subject};
pub use touched::{Touched, Touching};
pub use words::{WORD_BYTES, Words};

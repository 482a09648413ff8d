//! A deterministic x86 PC: processors, memory and devices as one value that can be run, watched, cloned and
//! restored. It knows nothing of threads, symbols or bugs.
//!
//! Time is instructions executed. Two machines that are equal stay equal under equal calls, on any host.

pub mod board;
pub mod boot;
pub mod devices;
pub mod entries;
pub mod events;
pub mod hash;
mod inputs;
mod machine;
pub mod memory;
mod processors;
pub mod snapshot;
pub mod stop;
pub mod transactions;
mod turns;
mod words;
pub mod x86;

pub use events::{Access, Distinct, Events, Filter, FlagChange, Happening, LeaveOut, LogEntry, Passed};
pub use inputs::{Input, Moment, Playback, Played, Tape};
pub use machine::Machine;
pub use memory::Memory;
pub use stop::{Kinds, Noting, Stop, StopSet, Unsupported, Watchpoint};
pub use transactions::{Atomicity, Transaction, Tsx};
pub use turns::{Turn, Turns};
pub use words::WordSet;
pub use x86::cpuid::HYPERCALL_LEAF;
pub use x86::state::{Activity, Cpu, Seg, Segment};

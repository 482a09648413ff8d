//! What the software inside the machine means: its symbols and types, threads, locks and heap.
//!
//! Contract: everything is learned from outside, through [`state::Memory`] and [`state::Registers`]; the
//! guest is never changed and never trusted. Nothing here decides what a bug is or who runs next.

pub mod driving;
pub mod elf;
pub mod hooks;
pub mod linux;
pub mod stack;
pub mod state;
pub mod view;

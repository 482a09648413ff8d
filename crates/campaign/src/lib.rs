//! From a kernel and its description to what was found and proved, as a library: any program can do what
//! `rockfall test` does.
//!
//! - [`check`]: all of it in one call.
//! - [`recipe`]: how to make a target again; part of every finding file.
//! - [`target`]: files read and descriptions resolved, then machines and worlds at the beginning of the test.
//! - [`initial`], [`campaign`], [`begun`]: the planner's loop over many state spaces, within one budget.
//! - [`confirm`]: a lock order that was reported, and the deadlock that confirms it; [`watchpoints`]: threads
//!   held back before accesses.
//! - [`statement`], [`unmet`]: what the campaign claims at its end, and the points that nobody came to.
//! - [`finding_file`], [`narrate`], [`race_witness`], [`shorten`]: a bug made short, kept, and told.
//! - [`smp`]: the same for kernels on several processors: target, plan, statement, story.
//! - [`host`], [`store`], [`view`]: what the program around it provides: files, clock, a place to keep
//!   things, a listener.
//!
//! Contract: nothing here opens files, reads the clock, prints, or ends the process.
//! `examples/check_kernel.rs` is a whole program.

pub mod begun;
pub mod campaign;
pub mod check;
pub mod code;
pub mod confirm;
pub mod described;
pub mod failure;
pub mod finding_file;
pub mod host;
pub mod initial;
pub mod limits;
pub mod narrate;
pub mod program;
pub mod race_witness;
pub mod recipe;
pub mod searching;
pub mod shorten;
pub mod size;
pub mod smp;
pub mod statement;
pub mod store;
pub mod target;
pub mod text_places;
pub mod unmet;
pub mod view;
pub mod watchpoints;
pub mod words;

pub use failure::Failure;

//! What the software inside the machine means: its symbols and types, threads, locks and heap.
//!
//! Contract: everything is learned from outside, through [`state::Memory`] and [`state::Registers`]; the guest is never
//! changed and never trusted. Nothing here decides what a bug is or who runs next.

pub mod annotation;
mod cache_lines;
pub mod code;
pub mod compiled;
pub mod description;
pub mod doctor;
pub mod dwarf;
pub mod everywhere;
pub mod expression;
pub mod frames;
pub mod image;
pub mod init;
pub mod kernel;
pub mod lifecycle;
pub mod linux;
pub mod location;
pub mod multiprocessor;
pub mod nearest;
pub mod objects;
pub mod program;
pub mod recorder;
pub mod spinning;
pub mod stack;
pub mod state;
pub mod step_builder;
pub mod threads;
pub mod tracker;
pub mod types;
pub mod uniprocessor;
pub mod view;

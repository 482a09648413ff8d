//! One file per command: its flags, and what it does with them.

pub mod demo;
pub mod explore;
pub mod replay;
pub mod run;

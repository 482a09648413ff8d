//! Models of C functions for the model checker Spin, and what Spin says about them.
//!
//! A [`check::Check`] names C functions and what surrounds them; [`c::parse()`] reads the source, [`extract`]
//! translates it to a [`model::Model`] whose every line knows its C line; [`spin`] runs Spin on it, and
//! [`trail`] reads a counterexample back as steps of C lines. This crate knows no machine and no kernel: what
//! it says about a counterexample, others can try on one.

pub mod c;
pub mod check;
pub mod draft;
mod lower;
pub mod model;
pub mod source;
pub mod spin;
pub mod table;
pub mod trail;

pub use check::Check;
pub use lower::{NULL, extract};
pub use model::{Gap, Model, Origin};

//! Which interleavings to run next.
//!
//! A [`Strategy`] names executions, a [`Runner`] executes them on a [`World`] (a [`trace::Subject`] and its
//! [`Observer`]s). Systematic strategies are a [`Tree`] with a [`tree::Reduction`] that says which branches matter.
//!
//! This crate knows no CPU, no kernel and no symbol; it is developed and proved on the toy programs of [`toy`].
//! Nothing here reads a clock: budgets come as counts or as a question put to the caller.

pub mod estimate;
pub mod execution;
pub mod footprint;
pub mod history;
pub mod icb;
pub mod minimize;
pub mod order;
pub mod prove;
pub mod random;
pub mod run;
pub mod sample;
pub mod search;
pub mod strategies;
pub mod tally;
pub mod toy;
pub mod tree;
pub mod verdict;
pub mod world;

pub use execution::{Decision, End, Execution, Taken};
pub use footprint::Footprint;
pub use order::Order;
pub use run::{Bounds, Effort, Runner, Strategy};
pub use search::{Options, Search, Until, Workers};
pub use tree::Tree;
pub use verdict::{Bound, Found, Verdict};
pub use world::{Observer, Seen, World};

//! Tests of kernels on several processors: from a kernel and a test to what was found.

pub mod narrate;
pub mod pairs;
pub mod plan;
pub mod replay;
pub mod snapshots;
pub mod statement;
pub mod target;
pub mod test;

//! Tests of kernels on several processors as commands: flags, files, the terminal. The tests themselves are
//! in `campaign::smp`.

pub mod pairs;
pub mod replay;
pub mod snapshots;
pub mod target;
pub mod test;

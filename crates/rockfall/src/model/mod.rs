//! Models of C functions joined to kernels: what `promela` and the machine each do not know of the other.

pub mod described;
pub mod drive;
pub mod kernel;
pub mod linux;
pub mod page;
pub mod patch;
pub mod refine;
pub mod route;
pub mod words;

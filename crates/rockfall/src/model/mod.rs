//! Models of C functions joined to kernels: what `promela` and the machine each do not know of the other.

pub mod described;
pub mod told;

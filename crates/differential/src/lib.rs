//! The machine against the processor it models.
//!
//! Random instruction sequences run natively on the host and in the machine from the same registers and
//! memory, and must end alike: the same registers, flags, memory, exception and faulting address. What the
//! architecture leaves undefined is listed in one table (`undefined`); everything else is compared exactly.
//!
//! Limits: needs an x86-64 Linux host, which must be at least as capable as the machine claims to be.

pub mod emulated;
pub mod generate;
pub mod layout;
pub mod random;
pub mod screen;
pub mod state;
pub mod system;
pub mod undefined;
mod values;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod campaign;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod compare;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod native;

//! Exceptions of a processor by name, whatever number the processor gives them.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exception {
    DivisionError,
    Debug,
    NonMaskableInterrupt,
    Breakpoint,
    Overflow,
    BoundRange,
    InvalidOpcode,
    DeviceNotAvailable,
    DoubleFault,
    InvalidTaskSegment,
    SegmentNotPresent,
    StackFault,
    GeneralProtection,
    PageFault,
    FloatingPoint,
    Misaligned,
    MachineCheck,
    SimdFloatingPoint,
    /// An exception that has no name here, by its number.
    Other(u8),
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DivisionError => "division error",
            Self::Debug => "debug exception",
            Self::NonMaskableInterrupt => "non-maskable interrupt",
            Self::Breakpoint => "breakpoint",
            Self::Overflow => "overflow",
            Self::BoundRange => "bound range exceeded",
            Self::InvalidOpcode => "invalid opcode",
            Self::DeviceNotAvailable => "device not available",
            Self::DoubleFault => "double fault",
            Self::InvalidTaskSegment => "invalid task segment",
            Self::SegmentNotPresent => "segment not present",
            Self::StackFault => "stack fault",
            Self::GeneralProtection => "general protection fault",
            Self::PageFault => "page fault",
            Self::FloatingPoint => "floating-point error",
            Self::Misaligned => "misaligned access",
            Self::MachineCheck => "machine check",
            Self::SimdFloatingPoint => "SIMD floating-point error",
            Self::Other(_) => "unexpected exception",
        })
    }
}

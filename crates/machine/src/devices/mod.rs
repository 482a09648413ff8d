//! The chips of a PC, one plain struct each.
//!
//! A device knows its registers and its own time, never the processor, memory or another device; `Board`
//! wires them together.

pub mod bits;
pub mod clock;
pub mod disk;
pub mod i8042;
pub mod ide;
pub mod ioapic;
pub mod keyboard;
pub mod lapic;
pub mod pic;
pub mod pit;
pub mod power;
pub mod rtc;
pub mod serial;
pub mod vga;

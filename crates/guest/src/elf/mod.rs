//! The file: ELF, DWARF, types, call frames, instructions.

pub mod code;
pub mod dwarf;
pub mod frames;
pub mod image;
pub mod location;
pub mod nearest;
pub mod objects;
pub mod types;

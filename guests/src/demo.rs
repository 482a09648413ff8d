//! The images of the demonstration, built with this crate.

/// A kernel image with what is needed to name its functions and the test program's.
pub struct Demo {
    pub kernel: &'static [u8],
    /// The program's name, to be typed to the shell.
    pub test: &'static str,
    /// The test program with symbols and DWARF.
    pub program: &'static [u8],
}

/// The kernel whose `thread_fork` reads a thread that may be gone.
pub const FAULTY: Demo = Demo {
    kernel: include_bytes!(concat!(env!("OUT_DIR"), "/faulty/kernel")),
    test: "double_thread_fork",
    program: include_bytes!(concat!(env!("OUT_DIR"), "/faulty/programs/double_thread_fork")),
};

/// The kernel of [`FAULTY`] without the fault.
pub const CORRECT: Demo = Demo {
    kernel: include_bytes!(concat!(env!("OUT_DIR"), "/correct/kernel")),
    test: "double_thread_fork",
    program: include_bytes!(concat!(env!("OUT_DIR"), "/correct/programs/double_thread_fork")),
};

/// The text of a source file of the guests, by the name that debugging information gives it.
#[must_use]
pub fn source(name: &str) -> Option<&'static str> {
    const SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));
    SOURCES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

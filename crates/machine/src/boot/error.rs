//! Why a file could not be started, and what to do about it.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootError {
    Empty,
    NotAKernel,
    /// The file ends before something its headers promise.
    Truncated {
        what: &'static str,
        needed: u64,
        length: u64,
    },
    /// A header contradicts itself.
    Malformed(String),
    WrongClass,
    WrongMachine(u16),
    WrongType,
    /// Position-independent.
    Movable,
    NothingToLoad,
    /// Something does not fit into the machine's memory.
    OutOfMemory {
        what: String,
        start: u64,
        end: u64,
        memory: u64,
    },
    /// The Multiboot header asks for something we cannot give.
    UnknownFlags(u32),
    Graphics,
    /// A Linux kernel that cannot be entered in 64-bit mode.
    NoLongEntry,
    CommandLine {
        length: usize,
        max: u32,
    },
    NoDisk,
    /// A disk image beside four other disks.
    TooManyDisks,
    NoBootSignature,
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the file is empty"),
            Self::NotAKernel => write!(
                f,
                "not a kernel: neither an ELF file, nor a Linux image, nor a Multiboot header in the first 8 KiB, nor a boot sector that ends in 55 AA"
            ),
            Self::Truncated { what, needed, length } => {
                write!(f, "the file is truncated: {what} reaches to byte {needed}, but the file has {length}")
            }
            Self::Malformed(what) => write!(f, "the file is malformed: {what}"),
            Self::WrongClass => {
                write!(
                    f,
                    "this is a 64-bit ELF file; build the kernel for 32-bit x86 (for example with -m32)"
                )
            }
            Self::WrongMachine(machine) => {
                write!(f, "the ELF file is for another processor (e_machine {machine}); x86 is 3")
            }
            Self::WrongType => write!(f, "the ELF file is not an executable (was it linked?)"),
            Self::Movable => write!(
                f,
                "the ELF file is linked to run at any address, as today's compilers do by themselves, and nobody would move it to \
                 where it runs; build it with -fno-pie and link it with -no-pie"
            ),
            Self::NothingToLoad => write!(f, "the ELF file has no segment to load"),
            Self::OutOfMemory { what, start, end, memory } => write!(
                f,
                "{what} needs memory {start:#x} to {end:#x}, but the machine has {} MiB; give it more with --memory",
                memory >> 20
            ),
            Self::UnknownFlags(flags) => {
                write!(
                    f,
                    "the Multiboot header demands features this loader does not know (flags {flags:#x})"
                )
            }
            Self::Graphics => {
                write!(f, "the Multiboot header demands a graphics mode; this machine has a text screen only")
            }
            Self::NoLongEntry => write!(
                f,
                "this Linux kernel has no 64-bit entry; take one for amd64, of version 3.8 or later"
            ),
            Self::CommandLine { length, max } => write!(
                f,
                "the command line has {length} characters; the kernel takes {max}, and none of them may be NUL"
            ),
            Self::NoDisk => write!(f, "there is no disk to start from"),
            Self::TooManyDisks => write!(f, "at most four disks, the kernel's among them"),
            Self::NoBootSignature => {
                write!(f, "the disk's first sector does not end in 55 AA: it is not bootable")
            }
        }
    }
}

impl std::error::Error for BootError {}

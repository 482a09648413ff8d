//! Linux kernels without a description and without debug packages: what their images tell of themselves.
//!
//! Concept: a kernel carries its table of symbols ([`kallsyms`]) and of its warnings ([`bugs`]) for its oops
//! messages, how to unwind its stacks ([`orc`]), and its types ([`btf`]). [`Linux`] is the file, read once;
//! [`running::Running`] adds what only a running guest knows: where its per-CPU variables and modules are,
//! and, asked with the guest's memory, who runs ([`task`]), how it came there ([`stack`]) and what lies at an
//! address ([`slab`]). Contract: everything is learned from the image and from memory, nothing is written;
//! damaged images and hostile memory give errors or fewer answers, never a panic. 64-bit x86 only.

pub mod btf;
pub mod bugs;
pub mod kallsyms;
pub mod lines;
pub mod locks;
pub mod modules;
pub mod orc;
pub mod placed;
pub mod returns;
pub mod running;
pub mod sections;
pub mod slab;
pub mod stack;
pub mod symbols;
pub mod task;

use crate::elf::image::ImageHash;
use btf::Btf;
use bugs::Bugs;
use lines::Lines;
use machine::boot::linux as boot;
use orc::{Layout, Orc};
use sections::Sections;
use std::fmt;
use std::sync::{Arc, OnceLock};
use symbols::{Symbol, Symbols};
use trace::{Frame, Resolve, VirtAddr};

/// Why an image tells nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinuxError {
    pub file: String,
    pub problem: String,
}

impl fmt::Display for LinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl std::error::Error for LinuxError {}

const BANNER: &str = "Linux version ";
const BANNER_MAX: usize = 512;

/// A kernel image, read.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The file's name, for messages.
    pub name: Arc<str>,
    /// The hash of the file as it was given.
    pub hash: ImageHash,
    /// What `/proc/version` says: `Linux version 6.1.0-54-amd64 (…) …`.
    pub banner: String,
    pub symbols: Symbols,
    pub sections: Sections,
    pub orc: Orc,
    pub bugs: Bugs,
    /// Source lines, if a file with debugging information was given.
    lines: Lines,
    /// The kernel's types, read when first asked for.
    types: OnceLock<Option<Btf>>,
}

impl Linux {
    /// Reads a compressed image (bzImage) or the plain ELF file (vmlinux).
    pub fn parse(name: &str, file: &[u8]) -> Result<Arc<Self>, LinuxError> {
        Self::read(name, file).map(Arc::new)
    }

    /// Reads an image, with source lines from the vmlinux of the distribution's package with debugging
    /// information.
    pub fn parse_with_lines(
        name: &str,
        file: &[u8],
        debug_name: &str,
        debug: &[u8],
    ) -> Result<Arc<Self>, LinuxError> {
        let mut linux = Self::read(name, file)?;
        let fail = |problem: String| LinuxError { file: debug_name.to_owned(), problem };
        let own = Sections::parse(debug.to_vec()).and_then(|sections| build_id(&sections));
        if own.is_none() || own != build_id(&linux.sections) {
            return Err(fail(format!("not the debugging information of {name}: another build")));
        }
        linux.lines = Lines::parse(debug).map_err(fail)?;
        Ok(Arc::new(linux))
    }

    fn read(name: &str, file: &[u8]) -> Result<Self, LinuxError> {
        let fail = |problem: String| LinuxError { file: name.to_owned(), problem };
        let elf = if boot::is_image(file) {
            let unpacked = boot::unpack(file).map_err(|error| fail(error.to_string()))?;
            unpacked.ok_or_else(|| {
                fail("the kernel is packed in a way not known here (xz and zstd are); give the vmlinux inside it".into())
            })?
        } else {
            file.to_vec()
        };
        let sections = Sections::parse(elf)
            .ok_or_else(|| fail("not a 64-bit x86 kernel, or one that is damaged or cut off".into()))?;
        let constants = sections.section(".rodata").map_or(&[][..], |section| section.bytes);
        let entries = kallsyms::decode(constants).ok_or_else(|| {
            fail(
                "no table of symbols in the image; the kernel must be built with CONFIG_KALLSYMS and \
                 CONFIG_KALLSYMS_ALL, as distributions' are"
                    .into(),
            )
        })?;
        let symbols = Symbols::new(entries);
        let banner = symbols.address("linux_banner").and_then(|addr| banner_at(&sections, addr));
        let banner = banner.ok_or_else(|| fail("its symbols lead to no version (linux_banner)".into()))?;
        let bugs = Bugs::parse(&sections);
        let mut linux = Linux {
            name: name.into(),
            hash: ImageHash::of(file),
            banner,
            symbols,
            orc: Orc::new(Layout::Old, VirtAddr(0), &[], &[]),
            bugs,
            lines: Lines::default(),
            types: OnceLock::new(),
            sections,
        };
        let table = (linux.sections.section(".orc_unwind_ip"), linux.sections.section(".orc_unwind"));
        if let (Some(addresses), Some(rules)) = table {
            linux.orc = Orc::new(linux.orc_layout(), addresses.addr, addresses.bytes, rules.bytes);
        }
        Ok(linux)
    }

    /// The kernel's types; `None` if it was built without BTF.
    #[must_use]
    pub fn btf(&self) -> Option<&Btf> {
        let types = self.types.get_or_init(|| Btf::parse(self.sections.section(".BTF")?.bytes));
        types.as_ref()
    }

    /// How the ORC tables of this kernel and its modules are encoded.
    #[must_use]
    pub fn orc_layout(&self) -> Layout {
        let new = self.sections.section(".orc_header").is_some() || self.version() >= (6, 4);
        if new { Layout::New } else { Layout::Old }
    }

    /// `6.1.0-54-amd64`, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        let rest = self.banner.strip_prefix(BANNER).unwrap_or_default();
        rest.split(' ').next().unwrap_or_default()
    }

    /// Major and minor version.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        let mut numbers = self.release().split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    #[must_use]
    pub fn address(&self, name: &str) -> Option<VirtAddr> {
        self.symbols.address(name)
    }

    /// The symbol that a kernel address belongs to. Per-CPU variables are at other addresses while the kernel
    /// runs: [`running::Running`] knows them.
    #[must_use]
    pub fn symbol_at(&self, addr: VirtAddr) -> Option<&Symbol> {
        let (start, end) = (self.address("_text").or(self.address("_stext"))?, self.address("_end")?);
        if addr < start || addr >= end {
            return None;
        }
        self.symbols.at(addr)
    }

    /// The function that an address of the kernel's own code belongs to.
    #[must_use]
    pub fn function_at(&self, pc: VirtAddr) -> Option<&Symbol> {
        self.symbol_at(pc).filter(|symbol| symbol.is_code())
    }
}

/// The build ID that the linker gave this kernel: the note of type 3 by GNU.
fn build_id(sections: &Sections) -> Option<Vec<u8>> {
    const GNU: &[u8] = b"\x03\x00\x00\x00GNU\x00";
    let notes = sections.section(".notes").or_else(|| sections.section(".note.gnu.build-id"))?.bytes;
    let at = notes.windows(GNU.len()).position(|window| window == GNU)?;
    let length = notes.get(at.checked_sub(4)?..at)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let start = at + GNU.len();
    Some(notes.get(start..start.checked_add(length)?)?.to_vec())
}

/// A banner of a sensible form.
fn banner_at(sections: &Sections, addr: VirtAddr) -> Option<String> {
    let bytes = (1..=BANNER_MAX).rev().find_map(|length| sections.at(addr, length))?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?.trim_end();
    text.starts_with(BANNER).then(|| text.to_owned())
}

/// `name` or `name+0x12`.
pub(crate) fn with_offset(name: &str, offset: u64) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset:#x}") }
}

impl Resolve for Linux {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        let function = self.function_at(pc).map(|symbol| symbol.name.to_string());
        let (file, line) = self.lines.at(pc).map(|(file, line)| (file.to_owned(), line)).unzip();
        vec![Frame { pc, function, file, line, interrupted: false }]
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        let symbol = self.symbol_at(addr)?;
        Some(with_offset(&symbol.name, addr.0 - symbol.addr.0))
    }
}

//! Linux kernels, entered in 64-bit mode: compressed images (bzImage) and the plain ELF file inside them
//! (vmlinux).
//!
//! Contract: the boot processor is left at the kernel's 64-bit entry as the boot protocol asks: paging on
//! with the first 4 GiB mapped one to one, flat segments with the selectors 0x10 and 0x18, interrupts off,
//! RSI at the zero page. The modules of the boot options, one behind the other, are the initial file system.
//! An image whose payload is packed with xz or zstd, as Debian's are, is unpacked here and its ELF entered
//! directly, which saves the guest some four billion instructions; any other is entered at its own
//! decompressor. Source: the kernel's Documentation/x86/boot.rst, "64-bit boot protocol" and "The real-mode
//! kernel header", and zero-page.rst. Not modelled: 16-bit and 32-bit entry, EFI hand-over, graphics modes.
//! Nothing is relocated: where the kernel runs is where it was linked, unless its own decompressor moves it.

use std::io::Read;

use trace::PhysAddr;

use super::{BootError, BootOptions, acpi, elf, rom};
use crate::devices::clock::Clock;
use crate::memory::{Memory, PAGE};
use crate::x86::state::{Cpu, Seg, Segment, cr0, cr4, efer, reg};

// Fields of the header and of the zero page, which has the header at the same offsets.
const E820_COUNT: usize = 0x1e8;
const HEADER: usize = 0x1f1;
const SETUP_SECTORS: usize = 0x1f1;
const HEADER_LENGTH: usize = 0x201;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const LOADER: usize = 0x210;
const LOAD_FLAGS: usize = 0x211;
const RAMDISK_START: usize = 0x218;
const RAMDISK_SIZE: usize = 0x21c;
const COMMAND_LINE: usize = 0x228;
const RAMDISK_MAX: usize = 0x22c;
const EXTENDED_FLAGS: usize = 0x236;
const COMMAND_LINE_MAX: usize = 0x238;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const PREFERRED_ADDRESS: usize = 0x258;
const INIT_SIZE: usize = 0x260;
const HEADER_END: usize = 0x264;
const E820: usize = 0x2d0;
const ACPI_RSDP: usize = 0x070;

/// The first version of the protocol whose header says how much memory the kernel needs and whether it has a
/// 64-bit entry.
const VERSION_MIN: u16 = 0x20c;
const HAS_64_BIT_ENTRY: u16 = 1;
const ENTRY_64: u64 = 0x200;
const LOADER_UNREGISTERED: u8 = 0xff;
const LOADED_HIGH: u8 = 1;
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";
/// The largest kernel that is accepted; a file that claims a larger one is damaged.
const KERNEL_BYTES_MAX: u64 = 1 << 30;
/// Room for one of at most this size is made at once, on the word of its header.
const USUAL_BYTES_MAX: usize = 128 << 20;
/// The longest command line that the kernel takes if its header does not say.
const COMMAND_LINE_DEFAULT_MAX: u32 = 2047;
const RAMDISK_DEFAULT_MAX: u64 = 0x7fff_ffff;

// Low memory, all of it free for the kernel once it has read what is there.
const GDT: u64 = 0x1000;
const ZERO_PAGE: u64 = 0x7000;
const PAGE_TABLES: u64 = 0x9000;
const STACK: u64 = 0x9_0000;
const COMMAND_LINE_AT: u64 = 0x2_0000;

const BOOT_CODE: u16 = 0x10;
const BOOT_DATA: u16 = 0x18;

/// The command line that lets a kernel boot without measuring what is known.
///
/// The serial port is the console. Code is where it was linked, so that addresses are the same in all runs of
/// a kernel. The time-stamp counter counts instructions and is the same for all processors, hence the best
/// clock; loops of a delay are told from it for the other processors too (for the 250 ticks per second that
/// distributions configure; others get longer delays). This processor does nothing ahead of time, so defences
/// against that only cost; and the kernel's tests of its ciphers, half of all instructions of a boot, are not
/// what is tested here.
pub fn default_command_line(clock: Clock) -> String {
    let loops = clock.instructions_per_second / 250;
    format!("console=ttyS0 nokaslr mitigations=off tsc=reliable lpj={loops} cryptomgr.notests panic=-1")
}

/// Whether a file is a compressed kernel image.
pub fn is_image(file: &[u8]) -> bool {
    file.get(MAGIC..MAGIC + 4) == Some(b"HdrS")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// The ELF file inside a compressed image; `None` if it is packed in a way not known here.
pub fn unpack(file: &[u8]) -> Result<Option<Vec<u8>>, BootError> {
    Image::parse(file)?.unpack()
}

/// A compressed image, its header checked.
struct Image<'a> {
    /// From the beginning of the file on, at least as long as the header.
    setup: &'a [u8],
    /// The part that runs in protected or long mode.
    kernel: &'a [u8],
    /// The compressed kernel inside it.
    payload: &'a [u8],
}

impl<'a> Image<'a> {
    fn parse(file: &'a [u8]) -> Result<Self, BootError> {
        let length = file.len() as u64;
        let truncated = |what, needed| BootError::Truncated { what, needed, length };
        if file.len() < HEADER_END {
            return Err(truncated("the header of the Linux kernel", HEADER_END as u64));
        }
        let version = u16_at(file, VERSION);
        if version < VERSION_MIN || u16_at(file, EXTENDED_FLAGS) & HAS_64_BIT_ENTRY == 0 {
            return Err(BootError::NoLongEntry);
        }
        // Zero means four, for reasons of history.
        let sectors = match file[SETUP_SECTORS] {
            0 => 4,
            sectors => usize::from(sectors),
        };
        let start = (sectors + 1) * 512;
        let kernel = file.get(start..).ok_or_else(|| truncated("the kernel's setup code", start as u64))?;
        let first = u32_at(file, PAYLOAD_OFFSET) as usize;
        let end = first + u32_at(file, PAYLOAD_LENGTH) as usize;
        let payload =
            kernel.get(first..end).ok_or_else(|| truncated("the compressed kernel", (start + end) as u64))?;
        Ok(Self { setup: file, kernel, payload })
    }

    /// The ELF file inside, if it is packed in a way known here.
    fn unpack(&self) -> Result<Option<Vec<u8>>, BootError> {
        let (xz, zstd) = (self.payload.starts_with(XZ_MAGIC), self.payload.starts_with(ZSTD_MAGIC));
        if !xz && !zstd {
            return Ok(None);
        }
        // The length of what is inside follows the packed bytes.
        let Some((packed, size)) = self.payload.split_last_chunk::<4>() else { return Ok(None) };
        let size = u64::from(u32::from_le_bytes(*size));
        if size > KERNEL_BYTES_MAX {
            return Err(BootError::Malformed(format!("the kernel inside claims to have {size} bytes")));
        }
        let damaged = |error: String| {
            BootError::Malformed(format!("the compressed kernel cannot be unpacked: {error}"))
        };
        let mut kernel = Vec::with_capacity((size as usize).min(USUAL_BYTES_MAX));
        if xz {
            let reader = lzma_rust2::XzReader::new(packed, false);
            reader.take(size).read_to_end(&mut kernel).map_err(|error| damaged(error.to_string()))?;
        } else {
            let reader = ruzstd::decoding::StreamingDecoder::new(packed);
            let reader = reader.map_err(|error| damaged(error.to_string()))?;
            reader.take(size).read_to_end(&mut kernel).map_err(|error| damaged(error.to_string()))?;
        }
        Ok(Some(kernel))
    }

    /// Puts the image where it wants to be; the entry of its decompressor, and the memory it may use.
    fn place(&self, memory: &mut Memory) -> Result<elf::Loaded, BootError> {
        let start = u64::from_le_bytes(self.setup[PREFERRED_ADDRESS..][..8].try_into().expect("eight bytes"));
        let needed = u64::from(u32_at(self.setup, INIT_SIZE)).max(self.kernel.len() as u64);
        let end = start.saturating_add(needed);
        if end > memory.size() || start < 1 << 20 {
            let what = "the kernel".to_owned();
            return Err(BootError::OutOfMemory { what, start, end, memory: memory.size() });
        }
        memory.load(PhysAddr(start), self.kernel);
        Ok(elf::Loaded { entry: start + ENTRY_64, segments: vec![(start, end)] })
    }
}

pub fn load(file: &[u8], options: &BootOptions, memory: &mut Memory, cpu: &mut Cpu) -> Result<(), BootError> {
    let mut zero_page = vec![0; PAGE];
    let loaded = if is_image(file) {
        let image = Image::parse(file)?;
        let header_end = (MAGIC + usize::from(file[HEADER_LENGTH])).clamp(HEADER_END, E820);
        let header = file.get(HEADER..header_end).unwrap_or(&file[HEADER..HEADER_END]);
        zero_page[HEADER..HEADER + header.len()].copy_from_slice(header);
        match image.unpack()? {
            Some(kernel) => elf::load64(&kernel, memory)?,
            None => image.place(memory)?,
        }
    } else {
        put(&mut zero_page, MAGIC, *b"HdrS");
        elf::load64(file, memory)?
    };

    put(&mut zero_page, LOADER, [LOADER_UNREGISTERED]);
    zero_page[LOAD_FLAGS] |= LOADED_HIGH;
    put(&mut zero_page, ACPI_RSDP, acpi::RSDP.to_le_bytes());
    place_command_line(&options.command_line, &mut zero_page, memory)?;
    place_ramdisk(options, &loaded, &mut zero_page, memory)?;
    let map = rom::memory_map(memory.size());
    zero_page[E820_COUNT] = map.len() as u8;
    for (index, range) in map.into_iter().enumerate() {
        put(&mut zero_page, E820 + 20 * index, range.to_bytes());
    }
    memory.load(PhysAddr(ZERO_PAGE), &zero_page);

    enter(cpu, memory, loaded.entry);
    Ok(())
}

fn place_command_line(text: &str, zero_page: &mut [u8], memory: &mut Memory) -> Result<(), BootError> {
    let max = match u32_at(zero_page, COMMAND_LINE_MAX) {
        0 => COMMAND_LINE_DEFAULT_MAX,
        max => max.min(COMMAND_LINE_DEFAULT_MAX),
    };
    if text.len() > max as usize || text.contains('\0') {
        return Err(BootError::CommandLine { length: text.len(), max });
    }
    memory.load(PhysAddr(COMMAND_LINE_AT), &[text.as_bytes(), &[0]].concat());
    put(zero_page, COMMAND_LINE, (COMMAND_LINE_AT as u32).to_le_bytes());
    Ok(())
}

/// Puts the initial file system as high as it can be, so that the kernel can grow behind its end.
fn place_ramdisk(
    options: &BootOptions,
    loaded: &elf::Loaded,
    zero_page: &mut [u8],
    memory: &mut Memory,
) -> Result<(), BootError> {
    let size: u64 = options.modules.iter().map(|module| module.bytes.len().next_multiple_of(4) as u64).sum();
    if size == 0 {
        return Ok(());
    }
    let max = match u64::from(u32_at(zero_page, RAMDISK_MAX)) {
        0 => RAMDISK_DEFAULT_MAX,
        max => max,
    };
    let top = memory.size().min(max + 1);
    let start = top.saturating_sub(size) & !(PAGE as u64 - 1);
    if start < loaded.end() {
        let what = "the initial file system".to_owned();
        let (start, end) = (loaded.end(), loaded.end() + size);
        return Err(BootError::OutOfMemory { what, start, end, memory: memory.size() });
    }
    let mut at = start;
    for module in &options.modules {
        memory.load(PhysAddr(at), &module.bytes);
        at += module.bytes.len().next_multiple_of(4) as u64;
    }
    put(zero_page, RAMDISK_START, (start as u32).to_le_bytes());
    put(zero_page, RAMDISK_SIZE, (size as u32).to_le_bytes());
    Ok(())
}

/// Brings the processor to `entry` in long mode.
fn enter(cpu: &mut Cpu, memory: &mut Memory, entry: u64) {
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE: u64 = 0x80;
    const GIB: u64 = 4;
    let page = PAGE as u64;
    let (pointers, directories) = (PAGE_TABLES + page, PAGE_TABLES + 2 * page);
    memory.write_u64(PhysAddr(PAGE_TABLES), pointers | PRESENT_WRITABLE);
    for gib in 0..GIB {
        memory.write_u64(PhysAddr(pointers + 8 * gib), (directories + page * gib) | PRESENT_WRITABLE);
    }
    for index in 0..512 * GIB {
        memory.write_u64(PhysAddr(directories + 8 * index), index << 21 | LARGE | PRESENT_WRITABLE);
    }
    let descriptors = [0, 0, 0x00af_9b00_0000_ffff_u64, 0x00cf_9300_0000_ffff];
    for (index, descriptor) in descriptors.into_iter().enumerate() {
        memory.write_u64(PhysAddr(GDT + 8 * index as u64), descriptor);
    }
    cpu.cr0 = cr0::PE | cr0::MP | cr0::ET | cr0::NE | cr0::WP | cr0::PG;
    cpu.cr3 = PAGE_TABLES;
    cpu.cr4 = cr4::PAE;
    cpu.efer = efer::LME | efer::LMA;
    cpu.regs = [0; 16];
    cpu.regs[reg::SP] = STACK;
    cpu.regs[reg::SI] = ZERO_PAGE;
    for seg in [Seg::Es, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs] {
        cpu.segments[seg as usize] = Segment::flat(BOOT_DATA, false, 0);
    }
    cpu.segments[Seg::Cs as usize] = Segment::from_descriptor(BOOT_CODE, descriptors[2]);
    cpu.gdtr.base = GDT;
    cpu.gdtr.limit = 8 * descriptors.len() as u16 - 1;
    cpu.flags.set_image(0);
    cpu.rip = entry;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Module;
    use crate::x86::mmu::{Intent, walk};

    /// A 64-bit executable with one segment of `code` at 16 MiB, mapped high.
    fn vmlinux(code: &[u8]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0xffff_ffff_8100_0002_u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0, 0, 0, 0]);
        for half in [64_u16, 56, 1, 0, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        for word in [0x80, 0xffff_ffff_8100_0000, 0x100_0000, code.len() as u64, 0x2000, 0x20_0000] {
            file.extend(word.to_le_bytes());
        }
        file.resize(0x80, 0);
        file.extend(code);
        file
    }

    /// A compressed image whose payload nobody here can unpack.
    fn bzimage() -> Vec<u8> {
        let mut file = vec![0; 1024];
        put(&mut file, SETUP_SECTORS, [1]);
        put(&mut file, 0x1fe, [0x55, 0xaa]);
        put(&mut file, HEADER_LENGTH, [0x66]);
        put(&mut file, MAGIC, *b"HdrS");
        put(&mut file, VERSION, 0x20f_u16.to_le_bytes());
        put(&mut file, EXTENDED_FLAGS, 1_u16.to_le_bytes());
        put(&mut file, RAMDISK_MAX, 0x7fff_ffff_u32.to_le_bytes());
        put(&mut file, PAYLOAD_OFFSET, 0x300_u32.to_le_bytes());
        put(&mut file, PAYLOAD_LENGTH, 0x80_u32.to_le_bytes());
        put(&mut file, PREFERRED_ADDRESS, 0x100_0000_u64.to_le_bytes());
        put(&mut file, INIT_SIZE, 0x10_0000_u32.to_le_bytes());
        file.extend((0..1024).map(|i| i as u8));
        file
    }

    fn start(file: &[u8], options: &BootOptions) -> Result<(Memory, Cpu), BootError> {
        let (mut memory, mut cpu) = (Memory::new(64 << 20), Cpu::reset(true));
        load(file, options, &mut memory, &mut cpu).map(|()| (memory, cpu))
    }

    #[test]
    fn the_kernel_finds_what_the_protocol_promises() {
        let options = BootOptions {
            command_line: "console=ttyS0".to_owned(),
            modules: [&b"first"[..], b"second"]
                .map(|bytes| Module { command_line: String::new(), bytes: bytes.to_vec() })
                .to_vec(),
        };
        for (file, entry, loaded) in
            [(vmlinux(&[1, 2, 3, 4]), 0x100_0002, 0x0403_0201), (bzimage(), 0x100_0200, 0x0302_0100)]
        {
            let (memory, cpu) = start(&file, &options).unwrap();
            assert_eq!((cpu.rip, cpu.regs[reg::SI], cpu.bitness()), (entry, ZERO_PAGE, 64));
            assert_eq!(memory.read_u32(PhysAddr(0x100_0000)), loaded);
            let zero = |at: usize| PhysAddr(ZERO_PAGE + at as u64);
            assert_eq!(memory.read_u32(zero(MAGIC)).to_le_bytes(), *b"HdrS");
            assert_eq!(memory.read_u8(zero(LOADER)), 0xff);
            let mut text = [0; 14];
            memory.read(PhysAddr(memory.read_u32(zero(COMMAND_LINE)).into()), &mut text);
            assert_eq!(&text, b"console=ttyS0\0");
            let (start, size) = (memory.read_u32(zero(RAMDISK_START)), memory.read_u32(zero(RAMDISK_SIZE)));
            let mut files = vec![0; size as usize];
            memory.read(PhysAddr(start.into()), &mut files);
            assert_eq!((start % 4096, files.as_slice()), (0, &b"first\0\0\0second\0\0"[..]));
            assert_eq!(usize::from(memory.read_u8(zero(E820_COUNT))), rom::memory_map(64 << 20).len());
            // The identity map reaches 4 GiB.
            for address in [0u64, 0x123_4567, 0xfee0_0030] {
                let walked = walk(&cpu, &memory, address, Intent::Read, false);
                assert_eq!(walked.map(|w| w.physical).ok(), Some(address));
            }
        }
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let patched = |at: usize, bytes: &[u8]| {
            let mut file = bzimage();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            file
        };
        let xz = patched(1024 + 0x300, XZ_MAGIC);
        let zstd = patched(1024 + 0x300, ZSTD_MAGIC);
        let table: [(Vec<u8>, &str); 9] = [
            (bzimage()[..0x260].to_vec(), "the header of the Linux kernel reaches to byte 612"),
            (patched(VERSION, &[4, 2]), "no 64-bit entry"),
            (patched(EXTENDED_FLAGS, &[0]), "no 64-bit entry"),
            (patched(SETUP_SECTORS, &[200]), "the kernel's setup code reaches to byte"),
            (patched(PAYLOAD_LENGTH, &[0xff; 4]), "the compressed kernel reaches to byte"),
            (patched(INIT_SIZE, &[0xff; 4]), "give it more with --memory"),
            (xz, "claims to have"),
            (zstd, "claims to have"),
            (vmlinux(&[0; 64])[..0x90].to_vec(), "a segment reaches to byte"),
        ];
        for (file, expected) in table {
            let error = start(&file, &BootOptions::default()).map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks\n{expected}");
        }
        let long = BootOptions { command_line: "x".repeat(5000), ..BootOptions::default() };
        assert!(matches!(
            start(&vmlinux(&[0]), &long),
            Err(BootError::CommandLine { length: 5000, max: 2047 })
        ));
    }

    #[test]
    fn no_corruption_of_the_header_panics() {
        for (good, from) in [(bzimage(), HEADER), (vmlinux(&[0x90; 64]), 0)] {
            for at in from..from + 0x78 {
                for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                    let mut file = good.clone();
                    file[at] = value;
                    let _ = start(&file, &BootOptions::default());
                }
                let _ = start(&good[..at], &BootOptions::default());
            }
        }
    }
}

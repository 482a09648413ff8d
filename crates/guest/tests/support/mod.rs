//! Programs compiled on the fly, and memory made of tables.
#![allow(dead_code)]

use guest::elf::image::Image;
use guest::state::{Memory, Pieces, Registers};
use std::process::Command;
use std::sync::Arc;
use trace::VirtAddr;

/// Compiles freestanding 32-bit C (or assembly, if `name` ends in `.S`) and links it at 1 MiB.
pub fn build(name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    build_files(&[(name, source)], flags)
}

pub fn build_files(files: &[(&str, &str)], flags: &[&str]) -> Vec<u8> {
    let name = files[0].0;
    static BUILDS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let build = BUILDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}-{build}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, source) in files {
        std::fs::write(folder.join(name), source).unwrap();
    }
    let output = Command::new("gcc")
        .current_dir(&folder)
        .args([
            "-m32",
            "-ffreestanding",
            "-nostdlib",
            "-static",
            "-fno-pic",
            "-no-pie",
            "-fno-stack-protector",
        ])
        .args(["-Wl,-Ttext=0x100000,--build-id=none,-estart,-z,noexecstack", "-w", "-o", "out.elf"])
        .args(flags)
        .args(files.iter().map(|(name, _)| name))
        .output()
        .expect("gcc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(folder.join("out.elf")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    bytes
}

pub fn image(name: &str, source: &str, flags: &[&str]) -> Arc<Image> {
    Image::parse(name, &build(name, source, flags)).unwrap()
}

/// The file's own contents, with zeros behind, and pieces that lie over them.
pub struct World {
    pub image: Arc<Image>,
    pub over: Pieces,
}

impl World {
    pub fn new(image: &Arc<Image>) -> Self {
        World { image: image.clone(), over: Pieces::default() }
    }

    pub fn words(mut self, addr: u64, words: &[u32]) -> Self {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.over.0.push((VirtAddr(addr), bytes));
        self
    }

    pub fn bytes(mut self, addr: u64, bytes: &[u8]) -> Self {
        self.over.0.push((VirtAddr(addr), bytes.to_vec()));
        self
    }
}

impl Memory for World {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        // Byte by byte, so that a read may span pieces.
        for (at, byte) in buffer.iter_mut().enumerate() {
            let addr = addr.offset(at as u64);
            let mut one = [0];
            if self.over.read(addr, &mut one).is_none() && self.image.read(addr, &mut one).is_none() {
                let zero = self.image.segments.iter().any(|segment| {
                    addr.0.checked_sub(segment.addr.0).is_some_and(|offset| offset < segment.size)
                });
                if !zero {
                    return None;
                }
            }
            *byte = one[0];
        }
        Some(())
    }
}

pub fn address(image: &Image, function: &str) -> u64 {
    image.get(image.function(function)[0]).start.0
}

pub fn registers(pc: u64, sp: u64, bp: u64) -> Registers {
    let mut registers = Registers { pc, ..Registers::default() };
    registers.general[guest::state::SP] = sp;
    registers.general[guest::state::BP] = bp;
    registers
}

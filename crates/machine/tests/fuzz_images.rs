//! Random and damaged files as kernels: an error or a run, never a panic, never a hang.

mod fuzz;

use fuzz::Random;
use machine::Machine;
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format, Module};
use machine::devices::disk::Disk;
use std::collections::BTreeMap;

const MEMORY: u64 = 4 << 20;
const BUDGET: u64 = 3000;

/// A 32-bit executable: one segment of `code` at 1 MiB, behind a Multiboot header if wanted.
fn executable(code: &[u8], multiboot: bool) -> Vec<u8> {
    const START: u32 = 0x10_0000;
    let mut segment = Vec::new();
    if multiboot {
        let flags = 3u32;
        for word in [0x1bad_b002, flags, 0u32.wrapping_sub(0x1bad_b002 + flags)] {
            segment.extend(word.to_le_bytes());
        }
    }
    let entry = START + segment.len() as u32;
    segment.extend(code);
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
    for word in [1, entry, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for half in [52, 32, 1, 0, 0, 0] {
        file.extend(u16::to_le_bytes(half));
    }
    let bytes = segment.len() as u32;
    for word in [1, 0x80, START, START, bytes, bytes + 0x1000, 7, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    file.resize(0x80, 0);
    file.extend(segment);
    file
}

/// A boot sector that calls every BIOS service boot loaders use, with random registers, and runs on into what
/// it read.
fn boot_disk(random: &mut Random) -> Vec<u8> {
    let mut sector = Vec::new();
    while sector.len() < 440 {
        let service = random.pick(&[0x10, 0x11, 0x12, 0x13, 0x13, 0x13, 0x15, 0x16, 0x1a]);
        let function =
            random.pick(&[0, 1, 2, 3, 8, 0x0e, 0x13, 0x41, 0x42, 0x43, 0x48, 0x88, 0xe8, 0x24, 0x4f]);
        let low = random.pick(&[0, 1, 0x01, 0x20, 0x41, 0xff]);
        // mov ax, ..; mov bx, ..; mov cx, ..; mov dx, ..; int ..
        sector.extend([0xb8, low, function, 0xbb, random.u64() as u8, random.u64() as u8]);
        sector.extend([0xb9, random.u64() as u8, random.below(3) as u8, 0xba]);
        sector.extend([random.pick(&[0x80, 0x80, 0, 0x81, 0xff]), random.below(4) as u8, 0xcd, service]);
        if random.percent(20) {
            let count = 1 + random.below(3) as usize;
            sector.extend(random.bytes(count));
        }
    }
    sector.truncate(510);
    sector.resize(510, 0x90);
    sector.extend([0x55, 0xaa]);
    let rest = random.below(64) as usize * 512;
    sector.extend(random.bytes(rest));
    sector
}

fn damage(random: &mut Random, mut file: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.below(6) {
        if file.is_empty() {
            break;
        }
        // Headers are where damage is interesting.
        let reach = if random.percent(70) { file.len().min(0x90) } else { file.len() };
        let at = random.below(reach as u64) as usize;
        match random.below(5) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => {
                let word = random.pick(&[0u32, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0]);
                let end = file.len().min(at + 4);
                file[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            3 => file.truncate(at),
            _ => file[at] = random.u64() as u8,
        }
    }
    file
}

fn image(random: &mut Random) -> Vec<u8> {
    let count = 16 + random.below(512) as usize;
    let code = random.bytes(count);
    let file = match random.below(6) {
        0 => code,
        1 => executable(&code, false),
        2 => executable(&code, true),
        3 => {
            // A flat Multiboot kernel that says where it wants to be.
            let flags = 0x1_0003u32;
            let mut file = Vec::new();
            for word in [0x1bad_b002, flags, 0u32.wrapping_sub(0x1bad_b002 + flags)] {
                file.extend(word.to_le_bytes());
            }
            for word in [0x10_0000u32, 0x10_0000, 0, 0, 0x10_0020] {
                file.extend(word.to_le_bytes());
            }
            file.extend(&code);
            file
        }
        _ => boot_disk(random),
    };
    if random.percent(30) { file } else { damage(random, file) }
}

#[test]
fn damaged_images_are_refused_or_run() {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in fuzz::first_seed()..fuzz::first_seed() + fuzz::rounds(600) {
        let mut random = Random(seed);
        let file = image(&mut random);
        let outcome = match Format::detect(&file) {
            Err(_) => "not an image".into(),
            Ok(format) => {
                let mut config = BoardConfig {
                    cpus: random.pick(&[1, 2]),
                    memory_bytes: random.pick(&[MEMORY, 2 << 20, 16 << 20]),
                    ..BoardConfig::default()
                };
                if format == Format::Disk {
                    config.disks[0] = Some(Disk::new(file.clone()));
                }
                let mut machine = Machine::new(config);
                let options = BootOptions {
                    command_line: "kernel one two".into(),
                    modules: (0..random.below(3))
                        .map(|i| {
                            let count = random.below(5000) as usize;
                            Module { command_line: format!("module {i}"), bytes: random.bytes(count) }
                        })
                        .collect(),
                };
                let Machine { cpus, memory, board, .. } = &mut machine;
                match boot::load(format, &file, &options, memory, &mut cpus[0], board) {
                    Err(_) => format!("{format}: refused"),
                    Ok(()) => {
                        fuzz::run(machine, BUDGET, 100, seed);
                        format!("{format}: ran")
                    }
                }
            }
        };
        *seen.entry(outcome).or_default() += 1;
    }
    println!("{seen:?}");
    for outcome in
        ["disk image: ran", "Multiboot kernel: ran", "Multiboot kernel: refused", "ELF kernel: ran"]
    {
        assert!(fuzz::rounds(600) < 100 || seen.contains_key(outcome), "no round gave {outcome}: {seen:?}");
    }
}

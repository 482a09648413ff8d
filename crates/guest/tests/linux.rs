//! What is learned from Debian's kernel image, and that damaged images are refused with a sentence.
//!
//! More rounds of damage: `FUZZ_ROUNDS=2000 cargo test --release -p guest --test linux`.

use guest::linux::{Linux, kallsyms};
use guests::linux::Debian;
use std::sync::{Arc, OnceLock};
use trace::{Resolve as _, VirtAddr};

fn debian() -> Option<Arc<Linux>> {
    static KERNEL: OnceLock<Option<Arc<Linux>>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| {
        let path = Debian::find()?.kernel;
        let file = std::fs::read(&path).expect("it was found");
        Some(Linux::parse("vmlinuz", &file).unwrap_or_else(|error| panic!("{error}")))
    });
    if kernel.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    kernel.clone()
}

#[test]
fn symbols_of_debian() {
    let Some(linux) = debian() else { return };
    assert!(linux.banner.contains("Debian"), "{}", linux.banner);
    assert!(linux.release().ends_with("-amd64"), "{}", linux.release());
    assert!(linux.version() >= (6, 1), "{:?}", linux.version());
    assert!(linux.symbols.len() > 50_000, "{}", linux.symbols.len());

    // Code is where the image has code, and every function's own address leads back to it or to an alias.
    let mut functions = 0;
    for symbol in linux.symbols.iter().filter(|symbol| symbol.is_code()) {
        functions += 1;
        let found = linux.symbol_at(symbol.addr);
        assert_eq!(found.map(|found| found.addr), Some(symbol.addr), "{}", symbol.name);
    }
    assert!(functions > 30_000, "{functions}");
    for name in ["vfs_write", "schedule", "do_exit", "kfree"] {
        let addr = linux.address(name).unwrap_or_else(|| panic!("{name}"));
        assert!(linux.sections.is_code(addr), "{name}");
        let frames = linux.frames(addr.offset(5));
        assert_eq!(frames[0].function.as_deref(), Some(name));
    }
    let task = linux.address("init_task").expect("data symbols are there too");
    assert_eq!(linux.data(task.offset(16)).as_deref(), Some("init_task+0x10"));
    assert_eq!(linux.data(VirtAddr(0xffff_8880_0000_0000)), None, "not of the image");
    assert!(linux.symbols.nearest("vfs_wirte").contains(&"vfs_write".to_owned()));
}

#[test]
fn what_is_no_kernel_with_symbols_is_refused() {
    let refused = |bytes: &[u8]| Linux::parse("file", bytes).expect_err("it is none").to_string();
    assert_eq!(refused(b"text"), "file: not a 64-bit x86 kernel, or one that is damaged or cut off");
    let own = std::fs::read(std::env::current_exe().expect("a test is a program")).expect("it can be read");
    assert!(refused(&own).contains("CONFIG_KALLSYMS"), "{}", refused(&own));
}

/// SplitMix64.
fn random(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ z >> 31) * bound as u128) >> 64) as usize
}

/// Changes a few bytes, or cuts some off.
fn damage(bytes: &mut Vec<u8>, within: std::ops::Range<usize>, state: &mut u64) {
    for _ in 0..=random(state, 4) {
        let at = (within.start + random(state, within.len())).min(bytes.len().saturating_sub(16));
        match random(state, 5) {
            0 => bytes[at] ^= 1 << random(state, 8),
            1 => bytes[at..at + 8].fill(0xff),
            2 => bytes[at..at + 8].fill(0),
            3 => (at..at + 16).for_each(|at| bytes[at] = random(state, 256) as u8),
            _ => drop(bytes.drain(at..at + random(state, 16))),
        }
    }
}

fn rounds(default: u64) -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_tables_of_symbols() {
    let Some(linux) = debian() else { return };
    let constants = linux.sections.section(".rodata").expect("a kernel has constants").bytes;
    let count = kallsyms::decode(constants).expect("just read").len();
    let digits = constants.windows(8).position(|window| window == b"0\x001\x002\x003\x00").expect("tokens");
    let (tokens, markers) = (digits - 512..digits + 2048, digits - 4096..digits);
    let names = digits.saturating_sub(1 << 20)..digits;
    for seed in 0..rounds(60) {
        let mut state = seed;
        let mut bytes = constants.to_vec();
        let within = [&tokens, &markers, &names, &(0..constants.len())][random(&mut state, 4)].clone();
        damage(&mut bytes, within, &mut state);
        if let Some(entries) = kallsyms::decode(&bytes) {
            assert_eq!(entries.len(), count, "the markers agree with nothing else");
        }
    }
}

//! Nothing that a user gives makes the reader of it panic or grow without bound: ELF files and descriptions
//! with bytes changed, cut out, doubled or swapped are read, resolved and asked for what a report asks.
//!
//! More rounds: `FUZZ_ROUNDS=20000 cargo test --release -p guest --test mutations`; one again: `FUZZ_SEED=17
//! FUZZ_ROUNDS=1`.

use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::ops::Range;
use trace::Resolve as _;

const PEBBLES: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * bound as u128) >> 64) as usize
    }

    fn part(&mut self, of: &Range<usize>, longest: usize) -> Range<usize> {
        let start = of.start + self.below(of.len());
        start..(start + 1 + self.below(longest)).min(of.end)
    }
}

/// Changes something in a part of the bytes, once or a few times.
fn mutate(bytes: &mut Vec<u8>, within: &Range<usize>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let within = within.start.min(bytes.len())..within.end.min(bytes.len());
        if within.is_empty() {
            return;
        }
        let part = random.part(&within, 16);
        match random.below(7) {
            0 => bytes[part.start] ^= 1 << random.below(8),
            1 => bytes[part].fill(0),
            2 => bytes[part].fill(0xff),
            3 => part.for_each(|at| bytes[at] = random.below(256) as u8),
            4 => drop(bytes.drain(part)),
            5 => {
                let copy = bytes[part.clone()].to_vec();
                bytes.splice(part.start..part.start, copy);
            }
            _ => bytes.truncate(part.start),
        }
    }
}

/// Asks an image what the rest of the program asks.
fn use_image(image: &Image) {
    let starts: Vec<_> = image.functions().map(|(_, function)| function.start).collect();
    for start in starts.iter().step_by(1 + starts.len() / 32) {
        for offset in [0, 1, 7] {
            let _ = image.frames(start.offset(offset));
        }
    }
    let _ =
        (image.nearest_functions("mutex_lok"), image.lines("sched.c", 100), image.all_variables().count());
    let _ = guest::hooks::init::draft(image);
}

#[test]
fn files() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    let built = guests::Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let whole = std::fs::read(built.programs.join("mutex_test")).expect("just built");
    let header = 0..0x200.min(whole.len());
    let description = Description::parse("pebbles.toml", PEBBLES).expect("it is bundled");
    let first = from_environment("FUZZ_SEED", 1);
    for seed in first..first + from_environment("FUZZ_ROUNDS", 1_500) {
        let mut random = Random(seed);
        let mut bytes = whole.clone();
        // The headers are few bytes that everything depends on; the sections are at the end.
        let within = match random.below(3) {
            0 => header.clone(),
            1 => whole.len().saturating_sub(0x800)..whole.len(),
            _ => 0..whole.len(),
        };
        mutate(&mut bytes, &within, &mut random);
        if let Ok(image) = Image::parse("mutated", &bytes) {
            use_image(&image);
            let _ = Kernel::resolve(&description, &image);
        }
    }
}

#[test]
fn descriptions() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutated_descriptions");
    let built = guests::Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let image =
        Image::parse("kernel", &std::fs::read(&built.kernel).expect("just built")).expect("an ELF file");
    let first = from_environment("FUZZ_SEED", 1);
    for seed in first..first + from_environment("FUZZ_ROUNDS", 1_500) {
        let mut random = Random(seed);
        let mut bytes = if random.below(4) == 0 { LIBRARY } else { PEBBLES }.as_bytes().to_vec();
        let within = 0..bytes.len();
        match random.below(3) {
            0 => mutate(&mut bytes, &within, &mut random),
            // A number becomes a huge one.
            1 => {
                let digits: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
                let at = digits[random.below(digits.len())];
                let huge = ["99999999999999999999", "9223372036854775807", "0xffffffffffffffff", "-1"];
                bytes.splice(at..=at, huge[random.below(huge.len())].bytes());
            }
            // Operators in the wrong place, or many of them.
            _ => {
                let at = random.below(bytes.len());
                let what = ["->", "((", "))", "*", "!", "\"", "[[", "{", "?", "\0", "é"][random.below(11)];
                bytes.splice(at..at, what.repeat(1 + random.below(3) * 2_000).bytes());
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(description) = Description::parse("mutated.toml", &text) {
            let _ = Kernel::resolve(&description, &image);
        }
    }
}

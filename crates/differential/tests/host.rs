//! A few seconds of what `cargo run --release -p differential -- --sequences 1000000` does for minutes.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use differential::campaign;
use differential::compare::Pair;
use differential::emulated::Tier;
use differential::generate::Kind;
use differential::native::plain_registers;
use differential::random::Random;
use differential::state::{Case, FxImage, Mode};

/// One test, because there is one host processor to be had per process.
#[test]
fn the_machine_agrees_with_the_host() {
    for mode in [Mode::Protected, Mode::Compatibility, Mode::Long] {
        match Pair::new(mode, &[Tier::First, Tier::Logged, Tier::Second]) {
            Ok(mut pair) => agree(&mut pair),
            Err(why) => println!("skipped: sequences cannot be run on this host: {why}"),
        }
    }
}

fn agree(pair: &mut Pair) {
    for (kind, sequences, forms_min) in [
        (Kind::Integer, 8_000, 500),
        (Kind::Float, 8_000, 500),
        (Kind::Bytes, 4_000, 200),
        (Kind::Common, 4_000, 200),
    ] {
        let summary = campaign::run(pair, 7, kind, sequences, 3, |_| {});
        for (topic, (cases, report)) in &summary.differences {
            println!("{topic} ({cases} cases)\n{report}");
        }
        assert_eq!(summary.differed, 0, "{kind:?}");
        assert!(summary.forms.len() > forms_min, "{kind:?}: only {} forms", summary.forms.len());
        assert!(
            summary.unfinished < sequences / 100,
            "{kind:?}: {} sequences without an outcome",
            summary.unfinished
        );
    }
    transcendental_functions_are_close(pair);
    reciprocals_are_close(pair);
}

/// RCPPS and RSQRTPS are tabulated differently by every processor, within a bound that the manual gives.
fn reciprocals_are_close(pair: &mut Pair) {
    const ERROR_MAX: f64 = 1.5 / 4096.0;
    type Function = (&'static str, [u8; 3], fn(f64) -> f64);
    let functions: [Function; 2] =
        [("rcpps", [0x0f, 0x53, 0xc1], |x| 1.0 / x), ("rsqrtps", [0x0f, 0x52, 0xc1], |x| 1.0 / x.sqrt())];
    let mut random = Random::new(12);
    for (name, code, exact) in functions {
        for _ in 0..1000 {
            let mut registers = plain_registers(pair.mode);
            // Exponents whose reciprocals are not denormal.
            let inputs: [f32; 4] = std::array::from_fn(|_| {
                f32::from_bits(random.u32() & 0x7f_ffff | (5 + random.below(240) as u32) << 23)
            });
            for (i, input) in inputs.iter().enumerate() {
                registers.fx.0[176 + 4 * i..][..4].copy_from_slice(&input.to_le_bytes());
            }
            let case = Case { mode: pair.mode, registers, code: code.to_vec(), warm: false };
            let (host, machine) = pair.run(&case);
            for (side, outcome) in [("host", host), ("machine", machine)] {
                for (i, &input) in inputs.iter().enumerate() {
                    let got = f32::from_bits(outcome.registers.fx.u32(160 + 4 * i));
                    let exact = exact(input.into());
                    let error = (f64::from(got) - exact).abs() / exact;
                    assert!(error <= ERROR_MAX, "{name}({input}) on the {side} is {got}, not {exact}");
                }
            }
        }
    }
}

/// F2XM1 and its family differ between processors in the last place, and must not differ more.
fn transcendental_functions_are_close(pair: &mut Pair) {
    const UNITS_MAX: i128 = 1;
    let functions: [(&str, [u8; 2], u64); 6] = [
        ("f2xm1", [0xd9, 0xf0], 0),
        ("fyl2x", [0xd9, 0xf1], 20),
        ("fyl2xp1", [0xd9, 0xf9], 0),
        ("fpatan", [0xd9, 0xf3], 20),
        ("fsin", [0xd9, 0xfe], 0),
        ("fcos", [0xd9, 0xff], 0),
    ];
    let mut random = Random::new(11);
    for (name, code, spread) in functions {
        for _ in 0..2000 {
            let mut registers = plain_registers(pair.mode);
            registers.fx.0[4] = 0xff;
            for i in 0..2 {
                // Below 1 - √½ in magnitude, where all of them are defined, or spread around 1.
                let exponent = match spread {
                    0 => 0x3fff - 2 - random.below(20) as u16,
                    n => (0x3fff - n as u16) + random.below(2 * n as usize) as u16,
                };
                let negative = random.percent(50) && !(name == "fyl2x" && i == 0);
                registers.fx.0[32 + 16 * i..][..8].copy_from_slice(&(random.u64() | 1 << 63).to_le_bytes());
                registers.fx.set_u16(40 + 16 * i, exponent | if negative { 0x8000 } else { 0 });
            }
            let case = Case { mode: pair.mode, registers, code: code.to_vec(), warm: false };
            let (host, machine) = pair.run(&case);
            let distance = order(&host.registers.fx) - order(&machine.registers.fx);
            assert!(distance.abs() <= UNITS_MAX, "{name}: {distance} units\n{}", pair.describe(&case));
        }
    }
}

/// ST(0) as an integer whose neighbours are its neighbours.
fn order(fx: &FxImage) -> i128 {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(fx.st(0));
    let bits = i128::from_le_bytes(bytes);
    // Drop the explicit integer bit.
    let magnitude = (bits >> 64 & 0x7fff) << 63 | bits & (i128::MAX >> 64);
    if bits >> 79 & 1 != 0 { -magnitude } else { magnitude }
}

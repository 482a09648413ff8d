//! `cargo run --release -p differential -- --sequences 1000000 --kind integer --seed 1`

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {
    println!("skipped: comparing with the host processor needs an x86-64 Linux host");
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const USAGE: &str = "usage: differential [--sequences N] [--mode protected|compatibility|long|all] [--kind integer|float|bytes|common|all]
                    [--seed N] [--differences N] [--tiers first|logged|second|all]

Runs random instruction sequences on this processor and in the machine until N of each kind have agreed, or until some
have differed (100 unless told otherwise), of which one of each sort is shown in its shortest form.";

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn run() -> Result<bool, String> {
    use differential::campaign;
    use differential::compare::Pair;
    use differential::emulated::Tier;
    use differential::generate::Kind;
    use differential::state::Mode;
    let (mut sequences, mut seed, mut differences_max) = (100_000, 1, 100);
    let mut kinds = vec![Kind::Integer, Kind::Float, Kind::Bytes, Kind::Common];
    let mut modes = vec![Mode::Protected, Mode::Compatibility, Mode::Long];
    let mut tiers = vec![Tier::First, Tier::Logged, Tier::Second];
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value\n\n{USAGE}"));
        let number =
            |text: String| text.parse::<u64>().map_err(|_| format!("{flag}: {text} is no number\n\n{USAGE}"));
        match flag.as_str() {
            "--sequences" => sequences = number(value()?)?,
            "--seed" => seed = number(value()?)?,
            "--differences" => differences_max = number(value()?)?,
            "--mode" => {
                modes = match value()?.as_str() {
                    "protected" => vec![Mode::Protected],
                    "compatibility" => vec![Mode::Compatibility],
                    "long" => vec![Mode::Long],
                    "all" => modes,
                    other => return Err(format!("no such mode: {other}\n\n{USAGE}")),
                }
            }
            "--kind" => {
                kinds = match value()?.as_str() {
                    "integer" => vec![Kind::Integer],
                    "float" => vec![Kind::Float],
                    "bytes" => vec![Kind::Bytes],
                    "common" => vec![Kind::Common],
                    "all" => kinds,
                    other => return Err(format!("no such kind: {other}\n\n{USAGE}")),
                }
            }
            "--tiers" => {
                tiers = match value()?.as_str() {
                    "first" => vec![Tier::First],
                    "logged" => vec![Tier::Logged],
                    "second" => vec![Tier::Second],
                    "all" => tiers,
                    other => return Err(format!("no such tier: {other}\n\n{USAGE}")),
                }
            }
            _ => return Err(USAGE.into()),
        }
    }
    let mut clean = true;
    for mode in modes {
        let mut pair = Pair::new(mode, &tiers)?;
        for &kind in &kinds {
            let mut next = 100_000;
            let summary = campaign::run(&mut pair, seed, kind, sequences, differences_max, |summary| {
                if summary.agreed >= next {
                    eprintln!("{mode:?} {kind:?}: {} agreed", summary.agreed);
                    next += 100_000;
                }
            });
            for (topic, (cases, report)) in &summary.differences {
                println!("{topic} ({cases} cases)\n{report}");
            }
            println!(
                "{mode:?} {kind:?}: {} sequences of {} instruction forms agreed, {} differed, {} had no outcome, \
                 unsupported {:?}",
                summary.agreed,
                summary.forms.len(),
                summary.differed,
                summary.unfinished,
                summary.unsupported
            );
            clean &= summary.differed == 0;
        }
    }
    Ok(clean)
}

//! The four bugs that the sanitizers of the Mimiker kernel found (Urbańczyk 2021, 4.2.3 and 4.3.2), remade as
//! faults of our own guests: two contradicting orders of locks, an unprotected variable, and a race in the
//! memory management. Each is looked for in one run by `rockfall check`, and in the same run of the guest
//! without the fault.

use ::guests::Build;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of bug, the fault that stands for it, what `rockfall check` is given, and the function that a race
/// of it has a side in.
struct Kind {
    what: &'static str,
    fault: &'static str,
    arguments: &'static [&'static str],
    race_in: Option<&'static str>,
}

const KINDS: [Kind; 4] = [
    Kind {
        what: "locks of the kernel taken in contradicting orders",
        fault: "vanish_circular",
        arguments: &["-t", "vanish_vanish", "--lockdep"],
        race_in: None,
    },
    Kind {
        what: "locks of a program taken in contradicting orders",
        fault: "circular_lock_order",
        arguments: &["--program", "programs/lock_order_test", "--lockdep"],
        race_in: None,
    },
    Kind {
        what: "an unprotected variable",
        fault: "counter_without_lock",
        arguments: &["--program", "programs/counter_test", "--kcsan", "--every", "1"],
        race_in: Some("count"),
    },
    Kind {
        what: "a race in the memory management",
        fault: "new_pages_unlocked",
        arguments: &["-t", "double_new_pages", "--kcsan", "--every", "1"],
        race_in: Some("vm_add_page"),
    },
];

/// The command, which lies beside this program.
pub fn command() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let beside = own.with_file_name("rockfall");
    match beside.exists() {
        true => Ok(beside),
        false => Err(format!("{} is not there: cargo build --release makes it", beside.display())),
    }
}

/// Whether one run shows the bug.
fn shows(command: &Path, kind: &Kind, faults: &[&str]) -> Result<bool, String> {
    let folder = std::env::temp_dir().join("rockfall-bench-sanitizers").join(faults.join("-")).join("found");
    let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
    Build { faults, ..Build::default() }.image(&folder).map_err(|error| error.to_string())?;
    let mut check = Command::new(command);
    check.args(["check", "kernel", "-k", "pebbles", "--json"]).args(kind.arguments).current_dir(folder);
    let output = check.output().map_err(|error| error.to_string())?;
    let text: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    Ok(match kind.race_in {
        None => list(&text["findings"]).iter().any(|finding| finding["class"] == "lock-order"),
        Some(function) => list(&text["races"])
            .iter()
            .flat_map(|tool| list(&tool["races"]["races"]))
            .any(|race| race.to_string().contains(&format!("\"{function}\""))),
    })
}

pub fn table(text: &mut String) -> Result<(), String> {
    let command = command()?;
    text.push_str(
        "\n| kind of bug | fault | `rockfall check` with | found in one run | without the fault |\n|---|---|---|---|---|\n",
    );
    for kind in &KINDS {
        let [found, mended] = [&[kind.fault][..], &[]].map(|faults| shows(&command, kind, faults));
        let word = |shows: bool| if shows { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {} | `{}` | `{}` | {} | {} |",
            kind.what,
            kind.fault,
            kind.arguments.join(" "),
            word(found?),
            if mended? { "reported" } else { "nothing" }
        );
    }
    Ok(())
}

//! A kernel whose scheduler spins on a stack of its own, once described and once annotated: correct it is searched to the
//! end, each of its faults is found and seen again.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny").join(name)
}

/// Runs the command; its output as far as it is JSON, and its exit code.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = command.args(arguments).current_dir(folder).output().expect("the command starts");
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    assert!(output.status.code() != Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    (json, output.status.code())
}

/// Explores the space of `points` of a kernel; what `verdict` and, for a bug, the finding's kind are.
fn explore(folder: &Path, kernel: &Path, description: &str, points: &str) -> String {
    std::fs::write(folder.join("k.toml"), description).expect("written");
    let kernel = kernel.to_str().expect("a path in UTF-8");
    let arguments =
        ["explore", kernel, "-k", "k.toml", "-t", "2", "--points", points, "--json", "-o", "finding.json"];
    let (json, code) = rockfall(folder, &arguments);
    let verdict = json["verdict"].as_str().unwrap_or("none").to_string();
    if verdict != "bug" {
        assert_eq!(code, Some(0), "{json}");
        return verdict;
    }
    assert_eq!(code, Some(1), "{json}");
    let (_, code) = rockfall(folder, &["replay", "finding.json"]);
    assert_eq!(code, Some(1), "the finding is seen again");
    json["finding"]["kind"].to_string()
}

#[test]
fn described() {
    for (fault, points, expected) in [
        (None, "fn:lock", "exhausted"),
        (None, "irq-on", "exhausted"),
        (Some("FAULT_TORN_SUM"), "lock", "panic"),
        (Some("FAULT_EARLY_CHECK"), "lock", "lost-wakeup"),
    ] {
        let folder =
            folder(&format!("described-{}-{}", fault.unwrap_or("correct"), points.replace(':', "-")));
        let macros: Vec<&str> = fault.into_iter().chain(["ROCKFALL_OFF"]).collect();
        let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let found = explore(&folder, &kernel, guests::tiny::DESCRIPTION, points);
        assert!(found.contains(expected), "{fault:?} with {points}: {found}");
    }
}

/// Without symbols, without debugging information, and with a description that says nothing.
#[test]
fn annotated() {
    for (fault, points, expected) in [
        (None, "lock", "exhausted"),
        (Some("FAULT_TORN_SUM"), "lock", "panic"),
        (Some("FAULT_EARLY_CHECK"), "", "lost-wakeup"),
    ] {
        let folder = folder(&format!("annotated-{}", fault.unwrap_or("correct")));
        let macros: Vec<&str> = fault.into_iter().collect();
        let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let kernel = guests::tiny::strip(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let found = explore(&folder, &kernel, guests::tiny::ANNOTATED, points);
        assert!(found.contains(expected), "{fault:?} with {points}: {found}");
    }
}

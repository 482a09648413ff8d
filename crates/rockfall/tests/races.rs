//! `rockfall races`: each detector alone, on one run, with the calls that led to either side.

use guests::Build;
use std::path::Path;
use std::process::Command;

fn races(fault: Option<&str>, arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("races").join(fault.unwrap_or("correct"));
    let faults = fault.map(str::to_owned).into_iter().collect();
    Build { faults, ..Build::default() }.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(["races", "kernel", "-k", "pebbles"]).args(arguments).current_dir(folder);
    let output = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Paragraphs about `counter`, without the headline.
fn about_counter(text: &str) -> Vec<String> {
    let paragraphs = text.split("data race on ").skip(1);
    paragraphs.filter_map(|text| text.strip_prefix("counter: ")).map(str::to_owned).collect()
}

#[test]
fn an_unprotected_counter_is_reported_with_both_ways_to_it() {
    for kind in ["limited", "pure", "lockset"] {
        let arguments = ["--program", "programs/counter_test", "--races", kind];
        let text = races(Some("counter_without_lock"), &arguments);
        let found = about_counter(&text);
        let both = |text: &String| {
            text.contains("count (counter_test.c:15), holding no lock")
                && text.contains("called by main (counter_test.c:28), by _start")
                && text.contains("called by thr_begin (")
        };
        assert!(found.iter().any(both), "{kind}: {text}");
    }
}

/// With the lock, only the lockset detector, which knows nothing of a thread having been waited for, has
/// doubts about the look at the result.
#[test]
fn a_protected_counter_is_left_alone() {
    for (kind, doubts) in [("limited", 0), ("pure", 0), ("lockset", 1)] {
        let text = races(None, &["--program", "programs/counter_test", "--races", kind]);
        let found = about_counter(&text);
        assert_eq!(found.len(), doubts, "{kind}: {text}");
        assert!(found.iter().all(|text| text.contains("main (counter_test.c:30)")), "{kind}: {text}");
    }
}

#[test]
fn races_of_a_kernel_for_programs() {
    let text = races(None, &["--test", "vanish_vanish", "--races", "lockset", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&text).expect("one object");
    let all = object["races"].as_array().expect("a list");
    assert!(!all.is_empty(), "{text}");
    for race in all {
        let stacks = race["stacks"].as_array().expect("two stacks");
        assert!(
            stacks.len() == 2 && stacks.iter().all(|stack| stack.as_array().unwrap().len() > 1),
            "{race}"
        );
    }
}

//! The small programs whose verdicts are known, as tables.

use detect::{Case, litmus, selftest};
use std::fmt::Write;

fn expect_all(cases: &[Case]) -> Result<(), String> {
    match cases.iter().find(|case| case.found != case.expected) {
        Some(wrong) => {
            Err(format!("{}: {} was expected, and {} found", wrong.what, wrong.expected, wrong.found))
        }
        None => Ok(()),
    }
}

/// Adds both tables; an error names a verdict that is wrong.
pub fn tables(text: &mut String) -> Result<(), String> {
    let programs = litmus::cases();
    expect_all(&programs)?;
    let _ = writeln!(
        text,
        "\nSmall programs, racy or not: {} of them, none with a wrong verdict. Where a cell is empty the program is about flags and atomic \
         instructions, which the other detectors do not know.\n\n| program | {} |\n|---|---|---|---|---|",
        programs.len(),
        litmus::DETECTORS.join(" | ")
    );
    for case in &programs {
        let _ = writeln!(text, "| {} | {} |", case.what, case.found);
    }
    let rules = selftest::cases();
    expect_all(&rules)?;
    let _ = writeln!(
        text,
        "\nThe kinds of cases of a lock validator's self-test, written anew: {} of them, none with a wrong answer.\n\n| case | found |\n|---|---|",
        rules.len()
    );
    for case in &rules {
        let _ = writeln!(text, "| {} | {} |", case.what, case.found);
    }
    Ok(())
}

//! Each mutant fits the sources of today in exactly one place.

use mutants::{Mutant, list};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_mutant_fits_exactly_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mutants = list().unwrap_or_else(|error| panic!("{error}"));
    let applied = |mutant: &Mutant| {
        let text = std::fs::read_to_string(root.join(&mutant.file)).map_err(|error| error.to_string())?;
        mutant.applied(&text, 0)
    };
    let problems: Vec<String> = mutants.iter().filter_map(|mutant| applied(mutant).err()).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let names: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    assert_eq!(names.len(), mutants.len(), "two mutants have the same name");
    let untested: Vec<&str> = mutants
        .iter()
        .filter(|m| m.tests.is_empty() && m.equivalent.is_none())
        .map(|m| m.name.as_str())
        .collect();
    assert!(untested.is_empty(), "no test is named for {}", untested.join(", "));
}

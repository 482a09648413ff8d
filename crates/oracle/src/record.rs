//! What a campaign has come to, as a text file: a line for each program, so that it can be interrupted and go
//! on, and as a table.

use crate::traces::traces;
use crate::{Compared, Fate, generate};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The line of a program: seed, flavour and result; for programs that agree also the numbers of outcomes and
/// interleavings.
#[must_use]
pub fn line(compared: &Compared) -> String {
    let Compared { seed, flavour, fate, .. } = compared;
    let fate = match fate {
        Fate::Agrees { outcomes, interleavings } => format!("agrees {outcomes} {interleavings}"),
        Fate::PassedOver => "passed-over".to_owned(),
        Fate::Disagrees { missed, invented } => match (missed.is_empty(), invented.is_empty()) {
            (false, false) => "missed+invented".to_owned(),
            (false, true) => "missed".to_owned(),
            _ => "invented".to_owned(),
        },
        Fate::Odd(_) => "odd".to_owned(),
    };
    format!("{seed} {} {fate}", flavour.name())
}

/// The lines of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub seeds: BTreeSet<u64>,
    outcomes: u64,
    /// How many interleavings each program that agrees had, by its seed.
    interleavings: BTreeMap<u64, u64>,
    /// How many programs had each result, by flavour.
    fates: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Record {
    /// Reads lines; an error names the first one that is malformed.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut record = Self::default();
        text.lines().try_for_each(|line| record.add(line))?;
        Ok(record)
    }

    /// Adds the line of a program; one that is known already says nothing new.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let bad = || format!("'{line}' is no line of a record of comparisons");
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&[seed, flavour, fate], numbers) = words.split_first_chunk::<3>().ok_or_else(bad)?;
        let numbers: Vec<u64> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
        let seed = seed.parse().map_err(|_| bad())?;
        if !self.seeds.insert(seed) {
            return Ok(());
        }
        match (fate, &numbers[..]) {
            ("agrees", &[outcomes, interleavings]) => {
                self.outcomes += outcomes;
                self.interleavings.insert(seed, interleavings);
            }
            ("passed-over" | "missed" | "invented" | "missed+invented" | "odd", []) => {}
            _ => return Err(bad()),
        }
        *self.fates.entry(flavour.to_owned()).or_default().entry(fate.to_owned()).or_default() += 1;
        Ok(())
    }

    fn count(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let fates = self.fates.values().flatten();
        fates.filter(|(fate, _)| wanted(fate)).map(|(_, count)| count).sum()
    }

    /// How many programs show a disagreement.
    #[must_use]
    pub fn disagreements(&self) -> u64 {
        self.count(|fate| fate != "agrees" && fate != "passed-over")
    }

    /// How many programs were not passed over.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.count(|fate| fate != "passed-over")
    }

    /// The interleavings of programs that only access cells, beside the traces that the programs alone have,
    /// by the number of threads.
    #[must_use]
    pub fn beside_traces(&self) -> String {
        let mut sums: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
        for (&seed, &interleavings) in &self.interleavings {
            let (_, program) = generate::program(seed);
            if let Some(traces) = traces(&program) {
                let sum = sums.entry(program.threads.len()).or_default();
                *sum = (sum.0 + 1, sum.1 + traces, sum.2 + interleavings);
            }
        }
        let mut text =
            "| threads | programs | traces of the program alone | interleavings explored | ratio |\n\
                        |---|---|---|---|---|\n"
                .to_owned();
        for (threads, (programs, traces, interleavings)) in sums {
            let ratio = interleavings as f64 / traces as f64;
            let _ = writeln!(text, "| {threads} | {programs} | {traces} | {interleavings} | {ratio:.2} |");
        }
        text
    }

    /// The result as text for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{} programs compared, {} passed over as too large; {} outcomes in {} interleavings. Programs with an outcome \
             missed: {}; with one invented: {}; with something that is no outcome: {}.\n\n\
             | flavour | compared | passed over | disagreements |\n|---|---|---|---|\n",
            self.compared(),
            self.count(|fate| fate == "passed-over"),
            self.outcomes,
            self.interleavings.values().sum::<u64>(),
            self.count(|fate| fate.contains("missed")),
            self.count(|fate| fate.contains("invented")),
            self.count(|fate| fate == "odd"),
        );
        for (flavour, fates) in &self.fates {
            let count = |fate: &str| fates.get(fate).copied().unwrap_or(0);
            let (agrees, passed_over) = (count("agrees"), count("passed-over"));
            let wrong = fates.values().sum::<u64>() - agrees - passed_over;
            let _ = writeln!(text, "| {flavour} | {} | {passed_over} | {wrong} |", agrees + wrong);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_each_program_once() {
        let text =
            "1 plain agrees 3 10\n2 stack passed-over\n1 plain agrees 3 10\n3 stack missed\n4 stack odd\n";
        let record = Record::read(text).expect("a record");
        assert_eq!((record.compared(), record.disagreements()), (3, 2));
        let summary = record.summary();
        assert!(
            summary.starts_with("3 programs compared, 1 passed over as too large; 3 outcomes in 10 inter")
        );
        assert!(summary.contains("missed: 1; with one invented: 0; with something that is no outcome: 1."));
        assert!(summary.contains("| stack | 2 | 1 | 2 |\n"));
        let seed = (0..).find(|&seed| traces(&generate::program(seed).1) == Some(1)).expect("a program");
        let record = Record::read(&format!("{seed} plain agrees 1 2\n")).expect("a record");
        let threads = generate::program(seed).1.threads.len();
        assert!(record.beside_traces().ends_with(&format!("| {threads} | 1 | 1 | 2 | 2.00 |\n")));
        for bad in ["x plain agrees 1 1", "1 plain", "1 plain agrees", "1 plain forgotten"] {
            assert!(Record::read(bad).is_err(), "{bad}");
        }
    }
}

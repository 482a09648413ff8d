//! A model: Promela text of which each line knows the C line it stands for.

use crate::c::Place;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a line of the model was translated from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub at: Place,
    /// The C function that the line is in.
    pub function: String,
    /// The C text.
    pub text: String,
    /// Whether the step accesses what others share.
    pub access: bool,
    /// How many calls deep the line is expanded.
    pub depth: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub text: String,
    pub indent: usize,
    pub origin: Option<Origin>,
}

/// A piece of the source that has no translation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Gap {
    pub at: Place,
    pub function: String,
    /// The C text.
    pub text: String,
    /// The statement or condition that it is in.
    pub statement: String,
    pub in_condition: bool,
    /// Why it cannot be translated without a rule.
    pub why: String,
}

impl Gap {
    /// One sentence for whoever writes the check file.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "{}: '{}' in {} has no translation: {}. Write a rule: [[rule]] c = {:?}, promela = \"...\" (or hide, comment)",
            self.at, self.text, self.function, self.why, self.text
        )
    }
}

/// How much of the source was translated, and by what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Statements and conditions that were translated by themselves.
    pub by_itself: u32,
    pub by_rule: u32,
    pub not: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    pub lines: Vec<Line>,
    pub gaps: Vec<Gap>,
    /// Rules of the table that matched nothing.
    pub unused_rules: Vec<String>,
    pub share: Share,
    /// For each process: its name, its function, and the first and last line of its part of the text, counted
    /// from 1.
    pub processes: Vec<ProcessText>,
    /// Whether processes can keep others from running, so that Spin must not leave out orders.
    pub has_exclusion: bool,
    /// C names of shared variables by their names in the model.
    pub variables: BTreeMap<String, String>,
    /// Objects of structures that are variables: pool and index, and the C name.
    pub objects: Vec<(String, u32, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessText {
    pub name: String,
    pub function: String,
    pub first: u32,
    pub last: u32,
}

impl Model {
    /// The text for Spin, each line with the place it is from as a comment.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let indent = "  ".repeat(line.indent);
            let _ = match &line.origin {
                Some(origin) => {
                    writeln!(text, "{indent}{}  /* {} */", line.text, origin.at)
                }
                None => writeln!(text, "{indent}{}", line.text),
            };
        }
        text
    }

    /// What line `number`, counted from 1, is from.
    #[must_use]
    pub fn origin(&self, number: u32) -> Option<&Origin> {
        self.lines.get(number.checked_sub(1)? as usize)?.origin.as_ref()
    }
}

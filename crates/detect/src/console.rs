//! The guest printed a line that its author said means trouble.
//!
//! A pattern is found anywhere in the line; `*` in it stands for any text, `\*` for a star. No regular
//! expressions: what a kernel prints when it is unwell is a fixed phrase with a hole or two.

use crate::facts::{Detector, Moment};
use crate::{Finding, FindingKind, Role, Side};
use std::sync::Arc;
use trace::{Action, Event};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: String,
    /// The pieces between the stars, in order.
    pieces: Vec<String>,
}

impl Pattern {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut pieces = vec![String::new()];
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '*' => pieces.push(String::new()),
                '\\' if chars.next_if_eq(&'*').is_some() => pieces.last_mut().expect("one piece").push('*'),
                _ => pieces.last_mut().expect("one piece").push(c),
            }
        }
        Self { text: text.to_string(), pieces }
    }

    #[must_use]
    pub fn found_in(&self, line: &str) -> bool {
        let mut rest = line;
        for piece in &self.pieces {
            match rest.find(piece.as_str()) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[derive(Clone, Debug, Default)]
pub struct Console {
    patterns: Arc<[Pattern]>,
}

impl Console {
    #[must_use]
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        Self { patterns: patterns.into_iter().map(Pattern::new).collect() }
    }
}

impl Detector<Finding> for Console {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let Some(event) = moment.event() else { return };
        if let Action::Console { line } = &event.action {
            self.printed(moment, event, line, findings);
        }
    }
}

impl Console {
    fn printed(&self, moment: &Moment<'_>, event: &Event, line: &str, findings: &mut Vec<Finding>) {
        if let Some(pattern) = self.patterns.iter().find(|pattern| pattern.found_in(line)) {
            let kind = FindingKind::Console { pattern: pattern.text.clone(), line: line.to_owned() };
            let side = Side { locks: Vec::new(), ..moment.side(Role::Printed, event) };
            findings.push(Finding::new(kind, moment.thread, event.pc, vec![side]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn a_pattern_is_text_with_holes() {
        for (pattern, line, found) in [
            ("BUG:", "[ 1.0] BUG: at x.c", true),
            ("BUG:", "no bug here", false),
            ("assert*failed", "assertion 'x' failed", true),
            ("assert*failed", "failed to assert", false),
            ("a*a", "a", false),
            ("\\*\\*\\*", "*** oops", true),
            ("\\*", "star", false),
            ("c:\\x", "c:\\x", true),
            ("", "anything", true),
        ] {
            assert_eq!(Pattern::new(pattern).found_in(line), found, "{pattern} in {line}");
        }
    }

    #[test]
    fn flags_and_leaves_alone() {
        check(
            "t1: console BUG: scheduling while atomic",
            expect![[r#"
                t1 printed: BUG: scheduling while atomic
                  = console: BUG
                  t1 printed it at 1001
            "#]],
        );
        check("t1: console all is well", expect![""]);
    }
}

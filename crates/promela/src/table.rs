//! The translation table: C patterns and the Promela text that stands for them.
//!
//! A pattern is C text, compared token by token. `$name` stands for any balanced piece of text, the same one
//! wherever it comes again; `...` stands for the rest, whatever that is. The right side is Promela text, in
//! which `$name` is the translation of what it stood for, or one of the words `keep` (translate as if there
//! were no rule), `hide` (leave it out), `comment` (leave it out, but show it as a comment) and `either` (a
//! value or condition that may be true or false; so may a condition that is hidden). For a condition, `else`
//! is the guard of the other branch; without it that is Promela's own `else`. Rules are tried in order; the
//! first that matches counts.
//!
//! Source: Modex's tables (Holzmann and Joshi 2004), which the model-based testing of kernels by Kim, Hong,
//! Hong and Kim (2009, section 2.2) uses. There a pattern is the beginning of a line; here it is a whole
//! statement or expression.

use crate::c::tokens::tokens;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The C pattern.
    pub c: String,
    pub promela: String,
    /// For a condition: the guard of the branch that is taken when it does not hold.
    #[serde(default, rename = "else", skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    /// The function in which the rule holds; `None`: in all.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// What a placeholder stood for: C text, tokens with single blanks.
pub type Bindings = BTreeMap<String, String>;

#[derive(Clone, Debug, Default)]
pub struct Table {
    rules: Vec<Rule>,
    /// How often each rule has matched.
    matches: Vec<u32>,
}

/// A rule that matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    pub rule: usize,
    pub action: Action,
    pub otherwise: Option<String>,
    pub bindings: Bindings,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Keep,
    Hide,
    Comment,
    Either,
    Text(String),
}

impl Table {
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        Self { rules: rules.to_vec(), matches: vec![0; rules.len()] }
    }

    /// The first rule that matches a statement or an expression.
    pub fn find(&mut self, text: &str, function: &str) -> Option<Match> {
        if self.rules.is_empty() {
            return None;
        }
        let subject = plain(text);
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.function.as_deref().is_some_and(|only| only != function) {
                continue;
            }
            let mut bindings = Bindings::new();
            if matches(&plain(&rule.c), &subject, &mut bindings) {
                self.matches[at] += 1;
                let action = match rule.promela.trim() {
                    "keep" => Action::Keep,
                    "hide" => Action::Hide,
                    "comment" => Action::Comment,
                    "either" => Action::Either,
                    text => Action::Text(text.to_owned()),
                };
                return Some(Match { rule: at, action, otherwise: rule.otherwise.clone(), bindings });
            }
        }
        None
    }

    /// Rules that have matched nothing.
    pub fn unused(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().zip(&self.matches).filter(|(_, count)| **count == 0).map(|(rule, _)| rule)
    }
}

/// The tokens of a statement or expression, without its semicolon and the parentheses around all of it.
fn plain(text: &str) -> Vec<&str> {
    let mut all = tokens(text);
    while all.last() == Some(&";") {
        all.pop();
    }
    while all.first() == Some(&"(") && closing(&all) == Some(all.len() - 1) {
        all.pop();
        all.remove(0);
    }
    all
}

/// Where the first bracket is closed.
fn closing(all: &[&str]) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, token) in all.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A pattern is matched against at most this many tokens: longer text is no statement that a table describes.
const TOKENS_MAX: usize = 2_000;

fn matches(pattern: &[&str], subject: &[&str], bindings: &mut Bindings) -> bool {
    if subject.len() > TOKENS_MAX {
        return false;
    }
    let Some((first, rest)) = pattern.split_first() else { return subject.is_empty() };
    if *first == "..." {
        return (0..=subject.len()).any(|skip| {
            let mut tried = bindings.clone();
            let found = balanced(&subject[..skip]) && matches(rest, &subject[skip..], &mut tried);
            if found {
                *bindings = tried;
            }
            found
        });
    }
    if let Some(name) = first.strip_prefix('$').filter(|name| !name.is_empty()) {
        return (1..=subject.len()).any(|length| {
            let piece = subject[..length].join(" ");
            if !balanced(&subject[..length]) || bindings.get(name).is_some_and(|known| *known != piece) {
                return false;
            }
            let mut tried = bindings.clone();
            tried.insert(name.to_owned(), piece);
            let found = matches(rest, &subject[length..], &mut tried);
            if found {
                *bindings = tried;
            }
            found
        });
    }
    subject.first() == Some(first) && matches(rest, &subject[1..], bindings)
}

fn balanced(all: &[&str]) -> bool {
    let mut depth = 0_i32;
    for token in all {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, text: &str) -> Option<Bindings> {
        let rule =
            Rule { c: pattern.to_owned(), promela: "keep".to_owned(), otherwise: None, function: None };
        Table::new(&[rule]).find(text, "f").map(|found| found.bindings)
    }

    #[test]
    fn patterns_match_whole_statements_token_by_token() {
        let bound = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
        };
        for (pattern, text, expected) in [
            ("x = 1;", "x  =  1", bound(&[])),
            ("x = 1", "x = 2", None),
            ("(a < b)", "a<b", bound(&[])),
            ("lock(&$l)", "lock(&d->lock);", bound(&[("l", "d -> lock")])),
            ("filldir(...) < 0", "filldir(a, b(c), d) < 0", bound(&[])),
            ("filldir(...) < 0", "filldir(a) < 0 || x", None),
            ("f($a, $b)", "f(g(1, 2), 3)", bound(&[("a", "g ( 1 , 2 )"), ("b", "3")])),
            ("$a = $a + 1", "n = n + 1", bound(&[("a", "n")])),
            ("$a = $a + 1", "n = m + 1", None),
            ("f(...)", "g()", None),
        ] {
            assert_eq!(find(pattern, text), expected, "{pattern} against {text}");
        }
    }
}

//! An edit of one line: in which function of which file, what stands there, and what is put in its place.
//!
//! A function begins with a line that has its name in the first column and ends with a brace there, as both
//! kernels write them. In a pattern `*` stands for anything; blanks at the ends of a line do not count.

use serde::Deserialize;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub name: String,
    pub file: String,
    pub function: String,
    /// What stands in the line: the first such line of the function counts.
    pub line: String,
    /// What is put in its place.
    pub with: String,
    pub test: String,
    pub why: String,
}

impl Fault {
    /// Edits the file below `root`.
    pub fn apply(&self, root: &Path) -> Result<(), String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let edited = edited(&text, &self.function, &self.line, &self.with)
            .map_err(|why| format!("{}: {}: {why}", self.name, path.display()))?;
        fs::write(&path, edited).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// The text with the first such line of the function changed.
pub fn edited(text: &str, function: &str, line: &str, with: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + with.len());
    let (mut inside, mut seen, mut done) = (false, false, false);
    for whole in text.lines() {
        let names = whole.strip_prefix(function).is_some_and(|rest| rest.trim_start().starts_with('('));
        inside = (inside || names) && !whole.starts_with('}');
        seen |= inside;
        match found(whole, line).filter(|_| inside && !done) {
            Some((from, to)) => {
                done = true;
                out.push_str(&whole[..from]);
                out.push_str(with);
                out.push_str(&whole[to..]);
            }
            None => out.push_str(whole),
        }
        out.push('\n');
    }
    match (done, seen) {
        (true, _) => Ok(out),
        (false, true) => Err(format!("{function} has no line with '{line}'")),
        (false, false) => Err(format!("there is no function {function}")),
    }
}

/// Where the pattern stands in a line.
fn found(line: &str, pattern: &str) -> Option<(usize, usize)> {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let from = line.find(first)?;
    let mut to = from + first.len();
    for piece in pieces {
        to = match piece.is_empty() {
            true => line.trim_end().len().max(to),
            false => to + line[to..].find(piece)? + piece.len(),
        };
    }
    Some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "int\nf(int a)\n{\n  wait (a);  // one\n}\n\nvoid\ng (void)\n{\n  wait (b); \n  wait (b);\n}\n";

    #[test]
    fn the_first_such_line_of_the_function() {
        let changed = edited(TEXT, "g", "wait (b);", ";").unwrap();
        assert_eq!(changed.lines().nth(9), Some("  ; "));
        assert_eq!(changed.lines().nth(10), Some("  wait (b);"));
        let changed = edited(TEXT, "f", "wait (*one", "x").unwrap();
        assert_eq!(changed.lines().nth(3), Some("  x"));
        let changed = edited(TEXT, "f", "wait (*", "x").unwrap();
        assert_eq!(changed.lines().nth(3), Some("  x"));
    }

    #[test]
    fn what_does_not_fit_is_reported() {
        assert_eq!(edited(TEXT, "f", "wait (b);", ""), Err("f has no line with 'wait (b);'".into()));
        assert_eq!(edited(TEXT, "h", "wait", ""), Err("there is no function h".into()));
    }
}

//! Preprocessed text line by line: where each line was written, and what the grammar must not see.

use super::syntax::Place;

/// The text with empty lines in place of the markers, and where each line is from.
pub(super) fn without_markers(name: &str, text: &str) -> (String, Vec<Place>) {
    let mut plain = String::with_capacity(text.len());
    let mut places = Vec::new();
    let mut at = Place { file: name.into(), line: 1 };
    for line in text.lines() {
        places.push(at.clone());
        match marker(line) {
            Some((number, file)) => {
                at.line = number;
                if *at.file != *file {
                    at.file = file.into();
                }
            }
            None => {
                if !line.starts_with("#pragma") {
                    // The grammar knows the one name and not the other.
                    plain.push_str(&without_typeof(&line.replace("__builtin_offsetof", "offsetof")));
                }
                at.line += 1;
            }
        }
        plain.push('\n');
    }
    places.push(at);
    (plain, places)
}

/// Stands for a type that is given by an expression.
pub(super) const TYPEOF: &str = "typeof_";

/// The line with each `typeof(...)` replaced by a name, which the grammar accepts as a type.
fn without_typeof(line: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find("typeof") {
        let (before, from) = rest.split_at(at);
        let begin = before.trim_end_matches('_');
        let after = from["typeof".len()..].trim_start_matches('_').trim_start();
        let apart = !begin.ends_with(|c: char| c.is_ascii_alphanumeric()) && after.starts_with('(');
        let mut depth = 0_i32;
        let close = after.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0
        });
        match close.filter(|_| apart) {
            Some((close, _)) => {
                out.push_str(begin);
                out.push_str(TYPEOF);
                rest = &after[close + 1..];
            }
            None => {
                out.push_str(before);
                out.push_str("typeof");
                rest = &from["typeof".len()..];
            }
        }
    }
    out + rest
}

fn marker(line: &str) -> Option<(u32, String)> {
    let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("#line "))?;
    let (number, rest) = rest.split_once(' ')?;
    let file = rest.strip_prefix('"')?.split('"').next()?;
    Some((number.parse().ok()?, file.replace("\\\\", "\\")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_expression_are_names() {
        for (line, expected) in [
            ("*(volatile typeof(a[(1)]) *)&(a)", "*(volatile typeof_ *)&(a)"),
            ("__typeof__ (x) y = x, my_typeof(z);", "typeof_ y = x, my_typeof(z);"),
            ("typeof(x", "typeof(x"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_typeof(line), expected);
        }
    }
}

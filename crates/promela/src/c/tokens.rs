//! C text as tokens, so that blanks do not matter where texts are compared.

/// The tokens of C text. Strings and characters are one token each; comments are none.
#[must_use]
pub fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let first = rest.chars().next().unwrap_or(' ');
        let length = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            continue;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if first.is_alphanumeric() || first == '_' || first == '$' {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            quoted(rest, first)
        } else {
            operator(rest).unwrap_or(first.len_utf8())
        };
        found.push(&text[at..at + length]);
        at += length;
    }
    found
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

const OPERATORS: [&str; 22] = [
    "...", "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=",
];

fn operator(text: &str) -> Option<usize> {
    OPERATORS.iter().find(|operator| text.starts_with(**operator)).map(|operator| operator.len())
}

/// The text on one line.
#[must_use]
pub fn single_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

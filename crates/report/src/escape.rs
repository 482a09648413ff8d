//! Making the guest's text harmless.
//!
//! Names, messages and source lines come from a program that may be broken or hostile. On a terminal a
//! control character could move the cursor or rewrite the title, and an override of the writing direction
//! could show text in an order that is not its own; in HTML a `<` could become an element. Both are shown as
//! what they are instead.

use std::fmt::Write;

/// Control characters and invisible ones that change how others look become visible escapes. One line stays
/// one line.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            '\u{80}'..='\u{9f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            _ => out.push(c),
        }
    }
    out
}

/// The [`visible`] form of text, for use between tags and inside quoted attributes.
#[must_use]
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// JSON that can stand inside a `script` element: nothing in it can end the element or open a comment.
#[must_use]
pub fn json_in_script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(c),
        }
    }
    out
}

/// JSON in ASCII: the same value, and nothing in it that a terminal would obey.
#[must_use]
pub fn json_in_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// How many terminal columns a character takes.
#[must_use]
pub const fn columns(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_not_obeyed() {
        for (text, on_terminal, in_html) in [
            ("plain", "plain", "plain"),
            ("\x1b[2J\x07", "\\x1b[2J\\x07", "\\x1b[2J\\x07"),
            ("a\nb\r", "a\\x0ab\\x0d", "a\\x0ab\\x0d"),
            ("\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}gpj.exe", "\\u{202e}gpj.exe", "\\u{202e}gpj.exe"),
            ("<b a='\"'>&", "<b a='\"'>&", "&lt;b a=&#39;&quot;&#39;&gt;&amp;"),
            ("x\ty é 名", "x y é 名", "x y é 名"),
        ] {
            assert_eq!(visible(text), on_terminal);
            assert_eq!(html(text), in_html);
        }
        assert_eq!(json_in_script("\"</script><!--\""), "\"\\u003c/script\\u003e\\u003c!--\"");
        assert_eq!(json_in_ascii("\"\u{9b}é\u{1f600}\""), "\"\\u009b\\u00e9\\ud83d\\ude00\"");
        assert_eq!(width("é名x"), 4);
    }
}

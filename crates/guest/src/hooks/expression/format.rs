//! Values as text, and the formats of `printf`.
//!
//! Contract: what a kernel's own printf would have written, for integers, characters, strings and pointers.
//! Text that cannot be read shows as `(unreadable)`; an unknown conversion is copied as it stands. Output is
//! bounded.

use super::syntax::Binary;
use super::{Code, Machine, Trouble};
use crate::state::Memory;
use std::sync::Arc;
use trace::VirtAddr;

/// Longest text taken from memory or produced.
pub(crate) const TEXT_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) enum TextCode {
    Literal(String),
    Signed(Code),
    Unsigned(Code),
    Pointer(Code),
    /// A NUL-terminated text that this points to.
    Text(Code),
    /// A text in an array.
    Bytes {
        at: Code,
        limit: usize,
    },
    Enumerator {
        code: Code,
        names: Arc<[(Arc<str>, i64)]>,
    },
    Comparison {
        operation: Binary,
        sides: Box<(TextCode, TextCode)>,
    },
    Format {
        pattern: Box<TextCode>,
        arguments: Arguments,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    Values(Vec<TextCode>),
    /// The arguments of the hooked function from this slot on.
    Rest {
        first: u8,
    },
    /// A `va_list`: on 32-bit x86, the address of the first slot.
    List(Code),
}

enum Item {
    Number(u64),
    Text(String),
}

pub(super) fn render<M: Memory + ?Sized>(
    text: &TextCode,
    machine: &Machine<'_, M>,
) -> Result<String, Trouble> {
    Ok(match text {
        TextCode::Literal(text) => text.clone(),
        TextCode::Signed(code) => (machine.run(code)? as i64).to_string(),
        TextCode::Unsigned(code) => machine.run(code)?.to_string(),
        TextCode::Pointer(code) => format!("{:#x}", machine.run(code)?),
        TextCode::Text(code) => read_text(machine, machine.run(code)?),
        TextCode::Bytes { at, limit } => machine.memory.read_text(VirtAddr(machine.run(at)?), *limit),
        TextCode::Enumerator { code, names } => {
            let value = machine.run(code)?;
            match names.iter().find(|(_, own)| *own as u64 == value) {
                Some((name, _)) => name.to_string(),
                None => (value as i64).to_string(),
            }
        }
        TextCode::Comparison { operation, sides } => {
            let (left, right) = (render(&sides.0, machine)?, render(&sides.1, machine)?);
            format!("{left} {} {right}", operation.spelling())
        }
        TextCode::Format { pattern, arguments } => {
            let pattern = render(pattern, machine)?;
            let word = machine.architecture.word();
            match arguments {
                Arguments::Values(values) => {
                    let mut values = values.iter();
                    printf(machine, &pattern, &mut |_| match values.next() {
                        None => Err(Trouble::Unknown),
                        Some(TextCode::Signed(code) | TextCode::Unsigned(code) | TextCode::Pointer(code)) => {
                            machine.run(code).map(Item::Number)
                        }
                        Some(TextCode::Enumerator { code, .. }) => machine.run(code).map(Item::Number),
                        Some(text) => render(text, machine).map(Item::Text),
                    })
                }
                Arguments::Rest { first } => {
                    let mut slot = usize::from(*first);
                    printf(machine, &pattern, &mut |wide| {
                        let low = machine.further_argument(slot)?;
                        slot += 1;
                        if !wide || word == 8 {
                            return Ok(Item::Number(low));
                        }
                        let high = machine.further_argument(slot)?;
                        slot += 1;
                        Ok(Item::Number(high << 32 | low))
                    })
                }
                Arguments::List(list) => {
                    let mut at = machine.run(list)?;
                    printf(machine, &pattern, &mut |wide| {
                        let size = if wide { 8 } else { word };
                        let value = machine.load(at, size)?;
                        at = at.wrapping_add(size as u64);
                        Ok(Item::Number(value))
                    })
                }
            }
        }
    })
}

fn read_text<M: Memory + ?Sized>(machine: &Machine<'_, M>, addr: u64) -> String {
    if addr == 0 {
        return "(null)".into();
    }
    if machine.memory.read(VirtAddr(addr), &mut [0]).is_none() {
        return "(unreadable)".into();
    }
    machine.memory.read_text(VirtAddr(addr), TEXT_MAX)
}

/// Widest field that is padded: a hostile format must not ask for gigabytes.
const WIDTH_MAX: usize = 256;

fn printf<M: Memory + ?Sized>(
    machine: &Machine<'_, M>,
    pattern: &str,
    next: &mut dyn FnMut(bool) -> Result<Item, Trouble>,
) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let spec = Conversion::parse(&rest[at + 1..], next);
        match spec {
            Some((conversion, length)) => {
                conversion.write(machine, &mut out, next);
                rest = &rest[at + 1 + length..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
        if out.len() > TEXT_MAX {
            break;
        }
    }
    out.push_str(rest);
    if out.len() > TEXT_MAX {
        let cut = (0..=TEXT_MAX).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
        out.truncate(cut);
        out.push('…');
    }
    out
}

#[derive(Default)]
struct Conversion {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    wide: bool,
    short: u8,
    kind: char,
}

impl Conversion {
    /// Parses what follows a `%`; the length says how much of it.
    fn parse(text: &str, next: &mut dyn FnMut(bool) -> Result<Item, Trouble>) -> Option<(Conversion, usize)> {
        let mut conversion = Conversion::default();
        let mut characters = text.char_indices().peekable();
        let mut star = |number: &mut usize| {
            if let Ok(Item::Number(value)) = next(false) {
                *number = (value as i32).unsigned_abs() as usize;
            }
        };
        while let Some((_, flag)) = characters.peek().copied() {
            match flag {
                '-' => conversion.left = true,
                '0' => conversion.zero = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                '#' => conversion.alternate = true,
                _ => break,
            }
            characters.next();
        }
        let mut digits =
            |number: &mut usize, characters: &mut std::iter::Peekable<std::str::CharIndices<'_>>| {
                if characters.peek().is_some_and(|(_, c)| *c == '*') {
                    characters.next();
                    star(number);
                }
                while let Some(digit) = characters.peek().and_then(|(_, c)| c.to_digit(10)) {
                    *number = number.saturating_mul(10).saturating_add(digit as usize);
                    characters.next();
                }
                *number = (*number).min(WIDTH_MAX);
            };
        digits(&mut conversion.width, &mut characters);
        if characters.peek().is_some_and(|(_, c)| *c == '.') {
            characters.next();
            let mut precision = 0;
            digits(&mut precision, &mut characters);
            conversion.precision = Some(precision);
        }
        let mut longs = 0;
        while let Some((_, modifier)) = characters.peek().copied() {
            match modifier {
                'h' => conversion.short += 1,
                'l' => longs += 1,
                'j' => longs = 2,
                'z' | 't' => {}
                _ => break,
            }
            characters.next();
        }
        conversion.wide = longs >= 2;
        let (at, kind) = characters.next()?;
        conversion.kind = kind;
        Some((conversion, at + kind.len_utf8()))
    }

    fn write<M: Memory + ?Sized>(
        &self,
        machine: &Machine<'_, M>,
        out: &mut String,
        next: &mut dyn FnMut(bool) -> Result<Item, Trouble>,
    ) {
        if self.kind == '%' {
            out.push('%');
            return;
        }
        if !"diuxXopcs".contains(self.kind) {
            out.push('%');
            out.push(self.kind);
            return;
        }
        let item = match next(self.wide) {
            Ok(item) => item,
            Err(_) => {
                out.push('?');
                return;
            }
        };
        let number = match item {
            Item::Text(text) => return self.pad(out, "", &self.cut(text), false),
            Item::Number(number) => number,
        };
        let bytes = match (self.wide, self.short) {
            (true, _) => 8,
            (_, 0) if self.kind == 'p' => machine.architecture.word() as u8,
            (_, 0) => 4,
            (_, 1) => 2,
            _ => 1,
        };
        let unsigned = super::narrow(number, bytes, false);
        let prefix = |text| if self.alternate && unsigned != 0 { text } else { "" };
        match self.kind {
            's' => self.pad(
                out,
                "",
                &self
                    .cut(read_text(machine, super::narrow(number, machine.architecture.word() as u8, false))),
                false,
            ),
            'c' => self.pad(out, "", &char::from(number as u8).to_string(), false),
            'd' | 'i' => {
                let signed = super::narrow(number, bytes, true) as i64;
                let sign = match (signed < 0, self.plus, self.space) {
                    (true, _, _) => "-",
                    (_, true, _) => "+",
                    (_, _, true) => " ",
                    _ => "",
                };
                self.pad(out, sign, &self.digits(signed.unsigned_abs().to_string()), true);
            }
            'u' => self.pad(out, "", &self.digits(unsigned.to_string()), true),
            'x' => self.pad(out, prefix("0x"), &self.digits(format!("{unsigned:x}")), true),
            'X' => self.pad(out, prefix("0X"), &self.digits(format!("{unsigned:X}")), true),
            'o' => self.pad(out, prefix("0"), &self.digits(format!("{unsigned:o}")), true),
            _ => self.pad(out, "0x", &format!("{unsigned:x}"), true),
        }
    }

    fn cut(&self, text: String) -> String {
        match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        }
    }

    fn digits(&self, digits: String) -> String {
        match self.precision {
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        }
    }

    fn pad(&self, out: &mut String, sign: &str, text: &str, number: bool) {
        let missing = self.width.saturating_sub(sign.len() + text.chars().count());
        if self.left {
            out.push_str(sign);
            out.push_str(text);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if self.zero && number && self.precision.is_none() {
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(text);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(sign);
            out.push_str(text);
        }
    }
}

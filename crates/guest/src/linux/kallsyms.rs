//! The kernel's own table of symbols, which it carries for its oops messages: every function and variable, no
//! debug package needed.
//!
//! Concept: names are packed with a table of 256 tokens. Nothing in the image says where the tables are (the
//! symbols that would are inside them), but their shape does: the digits 0 to 9 are always tokens of their
//! own, one behind the other, and the index behind the tokens must agree with them. From there the other
//! tables follow by their order, of which there are two: addresses before the names (up to 6.3) and addresses
//! behind the tokens (since 6.4). Every candidate is checked in full before it is believed. Contract: total
//! on damaged images: no tables that agree with each other, no symbols. Source: the kernel's
//! scripts/kallsyms.c and kernel/kallsyms.c of 6.1 and 6.12. Not modelled: 32-bit kernels, and tables with
//! absolute addresses (`CONFIG_KALLSYMS_BASE_RELATIVE` off, which no x86 kernel of the last ten years has).

use trace::VirtAddr;

/// A symbol as the table has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub addr: VirtAddr,
    /// The letter that `nm` prints: `T` code, `D` data, `A` absolute (per-CPU variables), small for local
    /// ones.
    pub kind: u8,
    pub name: String,
}

const TOKENS: usize = 256;
/// How many names lie between two markers.
const STRIDE: usize = 256;
/// The most symbols that are read; kernels have about a hundred thousand.
const SYMBOLS_MAX: usize = 4 << 20;
const SYMBOLS_MIN: usize = 256;
const NAME_MAX: usize = 4096;
/// All tables are aligned to words.
const WORD: usize = 8;
/// The lowest address of a kernel.
const KERNEL_START: u64 = 0xffff_8000_0000_0000;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The tokens: `tokens[i]` is what byte `i` of a packed name stands for.
struct Tokens<'a> {
    tokens: Vec<&'a [u8]>,
    start: usize,
    end: usize,
}

impl<'a> Tokens<'a> {
    /// The table whose token for `0` is at `zero`.
    fn around(bytes: &'a [u8], zero: usize) -> Option<Self> {
        // The tokens from '0' on lead to the index, and the index back to the first token.
        let mut at = zero;
        for _ in usize::from(b'0')..TOKENS {
            at += bytes.get(at..)?.iter().take(NAME_MAX).position(|byte| *byte == 0)? + 1;
        }
        let index = at.next_multiple_of(WORD);
        let offset = |token: usize| {
            let at = index + 2 * token;
            Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
        };
        let start = zero.checked_sub(offset(usize::from(b'0'))?)?;
        let mut tokens = Vec::with_capacity(TOKENS);
        let mut next = 0;
        for token in 0..TOKENS {
            let from = offset(token)?;
            if from != next {
                return None;
            }
            let text = bytes.get(start + from..)?;
            let length = text.iter().take(NAME_MAX).position(|byte| *byte == 0)?;
            tokens.push(&text[..length]);
            next = from + length + 1;
        }
        Some(Tokens { tokens, start, end: index + 2 * TOKENS })
    }
}

/// The packed names: where they begin and how many they are.
struct Names {
    count: usize,
    start: usize,
    end: usize,
}

/// Where the packed name at `at` begins, and where it ends. Lengths above 127 take two bytes.
fn name_at(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(at)?);
    if first & 0x80 == 0 {
        return Some((at + 1, at + 1 + first));
    }
    let second = usize::from(*bytes.get(at + 1)?);
    Some((at + 2, at + 2 + (first & 0x7f | second << 7)))
}

impl Names {
    /// The names whose number is at `at`, if the markers that end at `markers_end` agree with them.
    fn counted_at(bytes: &[u8], at: usize, tokens: usize) -> Option<Self> {
        let count = usize::try_from(u64_at(bytes, at)?).ok()?;
        if !(SYMBOLS_MIN..=SYMBOLS_MAX).contains(&count) {
            return None;
        }
        let markers_bytes = (4 * count.div_ceil(STRIDE)).next_multiple_of(WORD);
        // 6.2 and 6.3 had a table of three bytes for each name in between.
        let sorted_bytes = (3 * count).next_multiple_of(WORD);
        let ends = [Some(tokens), tokens.checked_sub(sorted_bytes)];
        ends.into_iter().flatten().find_map(|end| {
            let markers = end.checked_sub(markers_bytes)?;
            let start = at + WORD;
            Self::walk(bytes, start, count, markers).map(|end| Names { count, start, end })
        })
    }

    /// Walks over all names; where they end, if every marker is where it says and the markers follow.
    fn walk(bytes: &[u8], start: usize, count: usize, markers: usize) -> Option<usize> {
        let mut at = start;
        for number in 0..count {
            if number % STRIDE == 0 {
                let marker = u32_at(bytes, markers + 4 * (number / STRIDE))?;
                if marker as usize != at - start {
                    return None;
                }
            }
            let (_, end) = name_at(bytes, at)?;
            if end > markers {
                return None;
            }
            at = end;
        }
        (at.next_multiple_of(WORD) == markers).then_some(at)
    }
}

/// Where the addresses are: 32 bits for each symbol, and what they are relative to.
struct Addresses {
    offsets: usize,
    base: u64,
}

impl Addresses {
    fn find(bytes: &[u8], names: &Names, tokens: &Tokens<'_>) -> Option<Self> {
        let size = (4 * names.count).next_multiple_of(WORD);
        let count_at = names.start - WORD;
        let behind = || {
            let base = u64_at(bytes, tokens.end + size)?;
            Some(Addresses { offsets: tokens.end, base })
        };
        let before = || {
            let base_at = count_at.checked_sub(WORD)?;
            Some(Addresses { offsets: base_at.checked_sub(size)?, base: u64_at(bytes, base_at)? })
        };
        let sensible =
            |found: &Addresses| found.base >= KERNEL_START && u32_at(bytes, found.offsets).is_some();
        before().filter(sensible).or_else(|| behind().filter(sensible))
    }

    /// A number that is not negative is an address by itself (of a per-CPU variable), all others count from
    /// the base. Kernels since 6.15, whose per-CPU variables have ordinary addresses, only count from the
    /// base: there the first number, of the first symbol, is zero, and so are no others below it.
    fn decode(&self, bytes: &[u8], count: usize) -> Option<Vec<u64>> {
        let raw: Option<Vec<u32>> = (0..count).map(|i| u32_at(bytes, self.offsets + 4 * i)).collect();
        let raw = raw?;
        let signed = raw.iter().any(|offset| (*offset as i32) < 0);
        Some(
            raw.into_iter()
                .map(|offset| match offset as i32 {
                    offset if !signed => self.base.wrapping_add(offset as u32 as u64),
                    offset if offset >= 0 => offset as u64,
                    offset => self.base.wrapping_sub(1).wrapping_sub(i64::from(offset) as u64),
                })
                .collect(),
        )
    }
}

/// All symbols in the order of the table, which is that of addresses with per-CPU variables first.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";
    let mut from = 0;
    while let Some(found) = find(&bytes[from..], DIGITS) {
        let zero = from + found;
        from = zero + 1;
        let Some(tokens) = Tokens::around(bytes, zero) else { continue };
        if let Some(entries) = decode_with(bytes, &tokens) {
            return Some(entries);
        }
    }
    None
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn decode_with(bytes: &[u8], tokens: &Tokens<'_>) -> Option<Vec<Entry>> {
    let names_max = tokens.start.min(64 << 20);
    let first = (tokens.start - names_max).next_multiple_of(WORD);
    // The number of names is before them, hence as far from the tokens as there are names; nearest first.
    let mut candidates = (first..tokens.start).step_by(WORD).rev();
    let names = candidates.find_map(|at| Names::counted_at(bytes, at, tokens.start))?;
    let addresses = Addresses::find(bytes, &names, tokens)?.decode(bytes, names.count)?;
    let mut at = names.start;
    let mut entries = Vec::with_capacity(names.count);
    for addr in addresses {
        let (start, end) = name_at(bytes, at)?;
        let packed = bytes.get(start..end.min(names.end))?;
        let text: Vec<u8> =
            packed.iter().flat_map(|byte| tokens.tokens[usize::from(*byte)]).copied().collect();
        let (kind, name) = text.split_first()?;
        let name = String::from_utf8_lossy(name).into_owned();
        entries.push(Entry { addr: VirtAddr(addr), kind: *kind, name });
        at = end;
    }
    Some(entries)
}

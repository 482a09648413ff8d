//! How much memory this process uses, and how much it may.
//!
//! Told by the kernel of the host (Linux: `/proc`); where it does not tell, there is no limit.

use std::fs::read_to_string;

/// The part of the host's memory that may be used unless a limit is given.
const LIMIT_PERCENT: u64 = 90;
const PAGE_BYTES: u64 = 4096;

/// Reads a limit as it is given: 512M, 16G.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    let error = || format!("'{text}' is not a size; write 512M or 16G");
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[split..] {
        "K" => 10,
        "" | "M" => 20,
        "G" => 30,
        _ => return Err(error()),
    };
    let number: u64 = text[..split].parse().map_err(|_| error())?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or_else(error)
}

#[derive(Clone, Copy, Debug)]
pub struct Ram {
    limit_bytes: Option<u64>,
}

impl Ram {
    pub fn new(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes: limit_bytes.or_else(|| Some(host_bytes()? / 100 * LIMIT_PERCENT)) }
    }

    pub fn is_short(&self) -> bool {
        self.limit_bytes.zip(used_bytes()).is_some_and(|(limit, used)| used > limit)
    }
}

/// The memory of the host, or of the container that this process is confined to.
fn host_bytes() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    let confined = read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(confined.unwrap_or(u64::MAX).min(kib * 1024))
}

fn used_bytes() -> Option<u64> {
    let text = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (text, bytes) in [("512K", 512 << 10), ("7", 7 << 20), ("64M", 64 << 20), ("16G", 16 << 30)] {
            assert_eq!(parse_limit(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "1T", "-1M", "99999999999999G"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_below_what_any_process_needs_is_exceeded() {
        assert!(Ram::new(Some(1)).is_short() || used_bytes().is_none());
        assert!(!Ram::new(Some(u64::MAX)).is_short());
    }
}

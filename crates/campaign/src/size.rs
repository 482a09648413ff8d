//! Sizes of memory as people write them.

/// The most memory of a machine: above it the address space belongs to device registers.
const MEMORY_MAX: u64 = 3 << 30;
const MEMORY_MIN: u64 = 1 << 20;

/// The memory of a machine, such as 512K, 64M or 1G, in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix.to_ascii_uppercase().as_str() {
        "K" | "KB" | "KIB" => 10,
        "" | "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err("give a size as 512K, 64M or 1G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "give a size as 512K, 64M or 1G".to_owned())?;
    let bytes = number.saturating_mul(1 << shift);
    if (MEMORY_MIN..=MEMORY_MAX).contains(&bytes) { Ok(bytes) } else { Err("between 1M and 3G".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in
            [("64M", Some(64 << 20)), ("1g", Some(1 << 30)), ("2048K", Some(2 << 20)), ("16", Some(16 << 20))]
        {
            assert_eq!(parse_size(text).ok(), size, "{text}");
        }
        for text in ["", "M", "64X", "-1M", "4G", "99999999999999999999G", "1K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}

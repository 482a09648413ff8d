//! A phase: the part of a guest's run between two of its halts.

use std::time::Duration;

/// What was measured of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// As the guest calls it.
    pub name: String,
    /// What the guest computed: equal on every correct machine.
    pub checksum: u32,
    /// Processor time.
    pub time: Duration,
    /// Guest instructions, where the machine counts them.
    pub instructions: Option<u64>,
}

/// What is known when a guest halts at the end of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Halt {
    pub time: Duration,
    pub instructions: Option<u64>,
}

/// Puts the guest's final report (`name checksum` lines) and what was measured at each halt together. Time
/// before the first halt is boot and belongs to no phase.
pub fn phases(report: &str, halts: &[(Halt, Halt)]) -> Result<Vec<Phase>, String> {
    let lines: Vec<&str> = report.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() != halts.len() || halts.is_empty() {
        return Err(format!("the guest halted {} times and then said {report:?}", halts.len()));
    }
    let parse = |line: &str| {
        let (name, checksum) = line.trim().split_once(' ')?;
        Some((name.to_owned(), u32::from_str_radix(checksum, 16).ok()?))
    };
    (1..lines.len())
        .map(|at| {
            let (name, checksum) =
                parse(lines[at]).ok_or_else(|| format!("the guest said {:?}", lines[at]))?;
            let (begin, end) = (halts[at - 1].1, halts[at].0);
            let instructions = end.instructions.zip(begin.instructions).map(|(end, begin)| end - begin);
            Ok(Phase { name, checksum, time: end.time - begin.time, instructions })
        })
        .collect()
}

impl Phase {
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "checksum": self.checksum,
            "ns": self.time.as_nanos() as u64,
            "instructions": self.instructions,
        })
    }

    pub fn from_json(line: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(Self {
            name: value["name"].as_str()?.to_owned(),
            checksum: value["checksum"].as_u64()?.try_into().ok()?,
            time: Duration::from_nanos(value["ns"].as_u64()?),
            instructions: value["instructions"].as_u64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halt(ms: u64) -> (Halt, Halt) {
        let at = |ms| Halt { time: Duration::from_millis(ms), instructions: Some(ms * 10) };
        (at(ms), at(ms + 1))
    }

    #[test]
    fn a_phase_lies_between_two_halts() {
        let found = phases("\nboot 00000000\nhot 0000abcd\n", &[halt(5), halt(20)]).unwrap();
        let expected = Phase {
            name: "hot".to_owned(),
            checksum: 0xabcd,
            time: Duration::from_millis(14),
            instructions: Some(140),
        };
        assert_eq!(found, std::slice::from_ref(&expected));
        assert_eq!(Phase::from_json(&expected.to_json().to_string()), Some(expected));
    }

    #[test]
    fn a_report_that_does_not_fit_is_an_error() {
        for report in ["", "boot 0\n", "boot 00000000\nfault 1 2 3\n", "boot 0\nhot x\n"] {
            assert!(phases(report, &[halt(5), halt(20)]).is_err(), "{report:?}");
        }
    }
}

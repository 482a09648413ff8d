//! A finding as a file: everything needed to see it again, and nothing else.

use crate::failure::Failure;
use crate::recipe::Recipe;
use detect::Finding;
use serde::{Deserialize, Serialize};
use std::path::Path;
use trace::{PointSet, Schedule};

/// Files of another version are refused.
const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindingFile {
    pub rockfall_finding: u32,
    pub headline: String,
    pub target: Recipe,
    pub points: PointSet,
    pub schedule: Schedule,
    pub preemptions: usize,
    pub interleavings: u64,
    /// Preemptions when the finding was first seen, if fewer were sought.
    pub minimised_from: Option<usize>,
    /// Whether no schedule with fewer preemptions at these points shows it.
    #[serde(default)]
    pub fewest: bool,
    /// The nearest schedule without the finding, and how many choices it shares.
    pub passing: Option<(Schedule, usize)>,
    pub finding: Finding,
}

impl FindingFile {
    pub const VERSION: u32 = VERSION;

    /// The finding in a file of these contents; `path` is what its user calls it.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, Failure> {
        let no_finding = |error: serde_json::Error| {
            Failure::BadInput(format!(
                "{} is not a finding of Rockfall: {error}; give a file as 'rockfall explore' or 'rockfall test' wrote it",
                path.display()
            ))
        };
        // What the rest means is known only by the version.
        let Version { rockfall_finding: version } = serde_json::from_slice(text).map_err(no_finding)?;
        if version != VERSION {
            return Err(Failure::BadInput(format!(
                "{} is a finding of version {version}, and this Rockfall reads version {VERSION}: replay it with the \
                 Rockfall that wrote it, or find the bug again with this one",
                path.display()
            )));
        }
        serde_json::from_slice(text).map_err(no_finding)
    }

    /// The contents of the file.
    pub fn text(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(|error| Failure::Own(error.to_string()))
    }
}

#[derive(Deserialize)]
struct Version {
    rockfall_finding: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use detect::FindingKind;
    use trace::{ThreadId, VirtAddr};

    /// A byte changed anywhere gives a finding or a sentence.
    #[test]
    fn damaged_files_are_refused_or_read() {
        let finding = Finding {
            kind: FindingKind::TightLoop { instructions: 11, instructions_max: 10 },
            thread: ThreadId(3),
            pc: VirtAddr(0x10_0000),
            sides: Vec::new(),
            at: vec!["f".to_owned()],
        };
        let file = FindingFile {
            rockfall_finding: VERSION,
            headline: finding.headline(),
            target: Recipe::default(),
            points: "lock,within:f".parse().expect("points"),
            schedule: "t2*2 t3 t4".parse().expect("a schedule"),
            preemptions: 1,
            interleavings: 2,
            minimised_from: None,
            fewest: true,
            passing: None,
            finding,
        };
        let whole = serde_json::to_vec(&file).expect("JSON");
        let path = Path::new("f.json");
        assert!(FindingFile::parse(&whole, path).is_ok());
        for at in 0..whole.len() {
            assert!(FindingFile::parse(&whole[..at], path).is_err(), "cut at {at}");
            for byte in [0, b'"', b'9', b'{', b'*', 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = FindingFile::parse(&damaged, path);
            }
        }
    }
}

//! A finding as a file: everything needed to see it again, and nothing else.

use crate::failure::Failure;
use crate::recipe::Recipe;
use detect::Finding;
use guest::state::Architecture;
use serde::{Deserialize, Serialize};
use std::path::Path;
use trace::{PointSet, Schedule};

/// The version of the format; files of another version are refused.
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
    /// How many preemptions the first schedule had that showed the finding, if fewer were sought.
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
        let mut file: serde_json::Value = serde_json::from_slice(text).map_err(no_finding)?;
        name_exception(&mut file);
        serde_json::from_value(file).map_err(no_finding)
    }

    /// The contents of the file.
    pub fn text(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self).map_err(|error| Failure::Own(error.to_string()))
    }
}

/// Turns the numbers that x86 gives to exceptions, as older files have them, into names.
fn name_exception(file: &mut serde_json::Value) {
    let Some(fault) = file.pointer_mut("/finding/kind/fault").and_then(|fault| fault.as_object_mut()) else {
        return;
    };
    if let Some(vector) = fault.remove("vector").and_then(|vector| u8::try_from(vector.as_u64()?).ok()) {
        let exception = guest::elf::code::exception(Architecture::X86, vector);
        fault.insert("exception".to_owned(), serde_json::json!(exception));
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

    #[test]
    fn exceptions_of_older_files_are_named() {
        let mut file =
            serde_json::json!({"finding": {"kind": {"fault": {"vector": 14, "error": null, "addr": null}}}});
        name_exception(&mut file);
        let kind: FindingKind = serde_json::from_value(file["finding"]["kind"].clone()).expect("a kind");
        let exception = trace::Exception::PageFault;
        assert_eq!(kind, FindingKind::Fault { exception, error: None, addr: None });
    }

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

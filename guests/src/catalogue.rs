//! The catalogue of seeded faults, as `faults.toml` states it.

use serde::Deserialize;

/// What a fault is a fault of.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Kernel,
    Library,
    Program,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub name: String,
    #[serde(rename = "where")]
    pub place: Place,
    /// The macro that turns it on; `None` for a program that is always as it is: wrong, or no fault.
    pub flag: Option<String>,
    /// The program that exposes it.
    pub test: String,
    /// Preemption points in the kernel that suffice to find it; empty: voluntary switches do.
    pub points: Option<String>,
    /// Names of finding kinds that count as having found it; empty: there must be none.
    pub findings: Vec<String>,
    /// It needs store buffers.
    #[serde(default)]
    pub tso: bool,
    /// The fewest preemptions that expose it in the default design, as far as known.
    pub preemptions: Option<u32>,
    pub story: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fault: Vec<Fault>,
}

/// All faults, in the order of the catalogue.
#[must_use]
pub fn faults() -> Vec<Fault> {
    let text = include_str!("../faults.toml");
    match toml::from_str::<File>(text) {
        Ok(file) => file.fault,
        Err(error) => panic!("guests/faults.toml, which is part of this program, is wrong: {error}"),
    }
}

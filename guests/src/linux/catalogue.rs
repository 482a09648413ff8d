//! What must be found in Linux: the seeded faults of our modules, and bugs that released kernels had.

use std::path::PathBuf;

use serde::Deserialize;

/// A module of `guests/linux/modules` with a fault, which its mended twin lacks.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ModuleFault {
    /// The name of the module, of its device and of its test.
    pub name: String,
    /// The kinds of finding that show it: expectation, oops, warning, deadlock, use-after-free, double-free.
    pub shows: Vec<String>,
    /// The fewest preemptions that expose it, as far as we know.
    pub preemptions: u32,
    /// Whether it is exposed only if the moments of interrupts are chosen (`--interrupts`).
    #[serde(default)]
    pub interrupts: bool,
    /// Whether it is exposed only if processors have store buffers (`--tso`).
    #[serde(default)]
    pub tso: bool,
    /// What goes wrong, and the interleaving.
    pub story: String,
}

impl ModuleFault {
    /// The macro that makes the right twin.
    pub const MENDED: &str = "MENDED";

    #[must_use]
    pub fn module(&self) -> PathBuf {
        folder("modules").join(format!("{}.c", self.name))
    }

    #[must_use]
    pub fn test(&self) -> PathBuf {
        folder("modules/tests").join(format!("{}.c", self.name))
    }
}

/// A race that released kernels had.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ReleasedBug {
    /// The name of the test.
    pub name: String,
    /// The description of the bug in the words of the changelog.
    pub what: String,
    /// A release of Debian that has it, as [`super::debian::Store::fetch`] takes it.
    pub broken: String,
    /// The next release in the archive without it.
    pub fixed: Option<String>,
    /// The upstream version that fixed it.
    pub since: String,
    /// Modules of the kernel that the test needs.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Words for the kernel's command line.
    #[serde(default)]
    pub append: String,
    /// How it was found on the broken release, or how far it was looked for in vain.
    pub found: String,
    /// The kinds of finding that show it, as for [`ModuleFault`].
    pub shows: Vec<String>,
}

impl ReleasedBug {
    #[must_use]
    pub fn test(&self) -> PathBuf {
        folder("bugs").join(format!("{}.c", self.name))
    }
}

fn folder(name: &str) -> PathBuf {
    crate::sources().join("linux").join(name)
}

#[derive(Deserialize)]
struct Faults {
    fault: Vec<ModuleFault>,
}

/// All seeded faults of modules.
#[must_use]
pub fn module_faults() -> Vec<ModuleFault> {
    let text = include_str!("../../linux/modules/catalogue.toml");
    let faults: Faults = toml::from_str(text).expect("the catalogue is ours");
    faults.fault
}

#[derive(Deserialize)]
struct Bugs {
    bug: Vec<ReleasedBug>,
}

/// All bugs of released kernels that there are tests for.
#[must_use]
pub fn released_bugs() -> Vec<ReleasedBug> {
    let text = include_str!("../../linux/bugs/catalogue.toml");
    let bugs: Bugs = toml::from_str(text).expect("the catalogue is ours");
    bugs.bug
}

//! How to make a target again: what a finding file says of the kernel, its description, the test and the machine.

use crate::failure::Failure;
use crate::limits::Changes;
use detect::Signature;
use guest::image::Image;
use guest::uniprocessor::transactions::Mode;
use machine::Tsx;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How to make the same target again; part of a finding file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recipe {
    pub kernel: PathBuf,
    /// Hash of the kernel file: the finding is about these bytes.
    pub image: String,
    pub description_name: String,
    /// The description itself, so that the file is enough.
    pub description: String,
    pub test: String,
    pub memory_bytes: u64,
    pub append: String,
    pub modules: Vec<PathBuf>,
    pub disks: Vec<PathBuf>,
    /// Hashes of the modules and of the disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    pub symbols: Option<PathBuf>,
    pub programs: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<PathBuf>,
    /// Memory that stays allocated is no finding.
    #[serde(default)]
    pub no_leaks: bool,
    /// The allocator is tested too.
    #[serde(default)]
    pub test_heap: bool,
    /// The locks of the program's library are tested too.
    #[serde(default)]
    pub test_locks: bool,
    /// Rules about locks count.
    #[serde(default)]
    pub lockdep: bool,
    /// Whether there are transactions, and how they are explored.
    #[serde(default, skip_serializing_if = "TransactionRecipe::is_default")]
    pub transactions: TransactionRecipe,
    /// Findings that were known before and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Signature>,
    /// Numbers by which judgement is made that are not as usual.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub limits: Changes,
    /// With a program under test: its file and how its library is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<TestedRecipe>,
    /// With a Linux kernel: how it is booted to its test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxRecipe>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestedRecipe {
    pub program: PathBuf,
    /// Hash of that file.
    pub image: String,
    pub library_name: String,
    /// `None`: that which the kernel's description names.
    pub library: Option<String>,
}

/// How to boot the same machine again; part of a finding file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxRecipe {
    /// As `uname -r` prints it.
    pub release: String,
    pub cpus: u8,
    /// The packed initial file system, which holds the test, and its hash.
    pub initramfs: PathBuf,
    pub initramfs_hash: String,
    /// Of a test with several, the one that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u32>,
}

/// What of this is part of a finding file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TransactionRecipe {
    /// `None`: as the code has it.
    pub tsx: Option<bool>,
    #[serde(default)]
    pub mode: Option<Mode>,
    #[serde(default)]
    pub line_bytes: Option<u32>,
}

impl TransactionRecipe {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    /// What the processors have, for code in these images.
    pub fn tsx<'a>(&self, mut code: impl Iterator<Item = &'a Image>) -> Result<Option<Tsx>, Failure> {
        let has = self.tsx.unwrap_or_else(|| code.any(Image::has_transactions));
        if !has && self.mode.is_some() {
            let what = "--transactions: no code here begins a transaction (XBEGIN); if it is made at run time, add --tsx";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        let tsx = self.mode().tsx();
        Ok(has.then(|| Tsx { line_bytes: self.line_bytes.unwrap_or(tsx.line_bytes), ..tsx }))
    }
}

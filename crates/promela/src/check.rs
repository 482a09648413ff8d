//! A check file: which functions make up a model, what surrounds them, what must hold, and on which kernel it
//! is tried.

use crate::table::Rule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Check {
    pub name: String,
    pub source: Source,
    /// The functions that are extracted; calls between them are expanded.
    pub functions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelUnderTest>,
    pub model: ModelOptions,
    /// For each structure, how many objects can be allocated, beside those that are variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, u32>,
    /// Promela types of variables (`function.variable`, `variable`) and fields (`structure.field`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, String>,
    #[serde(rename = "lock", skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockFunctions>,
    #[serde(rename = "wait", skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitFunctions>,
    #[serde(rename = "exclusive", skip_serializing_if = "Vec::is_empty")]
    pub exclusives: Vec<ExclusiveFunctions>,
    #[serde(rename = "heap", skip_serializing_if = "Vec::is_empty")]
    pub heaps: Vec<HeapFunctions>,
    pub default: Defaults,
    #[serde(rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Promela text before everything else.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub declarations: String,
    /// C calls made before the processes start, of extracted functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// Promela statements executed before the processes start, after `setup`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub environment: String,
    #[serde(rename = "process")]
    pub processes: Vec<Process>,
    pub property: Property,
    pub search: SearchOptions,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Source {
    /// The C files; their paths are relative to the folder of the check file.
    pub files: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub define: Vec<String>,
    /// Further flags of the compiler, such as `-m32`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

/// The kernel that a counterexample is tried on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KernelUnderTest {
    /// The kernel file; `bundled` is Rockfall's own.
    pub image: String,
    /// The kernel's description: a name or a file.
    pub description: String,
    /// The test as it is typed at the kernel.
    pub test: String,
    /// With Linux: C files of modules that are built and loaded before the test, which is then a C file too;
    /// the image is a version that was fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// With Linux: how many processors the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u8>,
    /// Faults to build the bundled kernel with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Disks, and the file with symbols where the image has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbols: Option<String>,
    /// The kernel's command line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub append: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_megabytes: Option<u32>,
    /// Whether memory that a test allocates and does not free is kept on purpose.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_leaks: bool,
    /// Pairs to be compared where a replay does not show what the model shows.
    #[serde(rename = "compare", skip_serializing_if = "Vec::is_empty")]
    pub compares: Vec<Compare>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    pub model: String,
    pub kernel: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Each step makes one access to what others share, as a processor does.
    #[default]
    Access,
    /// Each C statement is one step.
    Statement,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ModelOptions {
    pub step: Granularity,
}

/// Functions that take and give back a lock, whose address is their argument.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LockFunctions {
    pub lock: String,
    pub unlock: String,
    #[serde(default)]
    pub argument: usize,
    /// Whether it is a semaphore: it counts, and has no owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
}

/// Functions that sleep until somebody wakes whoever sleeps on a channel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WaitFunctions {
    pub sleep: String,
    /// Which argument of `sleep` and `wake` is the channel.
    #[serde(default)]
    pub channel: usize,
    /// Which argument of `sleep` is the lock that is given back meanwhile.
    #[serde(default)]
    pub lock: Option<usize>,
    /// The function that wakes everybody who sleeps on the channel.
    #[serde(default)]
    pub wake_all: Option<String>,
    /// The function that wakes one of those who sleep on the channel.
    #[serde(default)]
    pub wake_one: Option<String>,
}

/// Functions between which nobody else runs: interrupts or preemption off and on, which may be nested.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExclusiveFunctions {
    pub off: String,
    pub on: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HeapFunctions {
    pub alloc: String,
    pub free: String,
}

/// What happens to a statement that no rule and no translation of ours knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultAction {
    /// The statement is listed, and no model is made.
    #[default]
    List,
    Hide,
    Comment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultCondition {
    #[default]
    List,
    /// Either branch may be taken.
    Either,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Defaults {
    pub assign: DefaultAction,
    pub call: DefaultAction,
    pub condition: DefaultCondition,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Process {
    pub name: String,
    pub function: String,
    /// The arguments, C expressions over constants and variables; `@2` is the object of that number in its
    /// pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Locks that the caller of the function holds meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HeldLock>,
    /// The thread of the test that the process stands for, such as `t4`; else the next one that comes to the
    /// function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// A lock that a caller takes, and where, for readers of the model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HeldLock {
    pub lock: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub taken_in: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Property {
    /// Whether processes that can never end are an error.
    pub deadlock: bool,
    /// Whether using an object that was freed is an error.
    pub freed: bool,
    /// A condition that holds when all processes have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finally: Option<String>,
    /// A formula of linear temporal logic, as Spin writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ltl: Option<String>,
    /// Whether only executions count in which every process that always can go on does.
    pub fair: bool,
}

impl Default for Property {
    fn default() -> Self {
        Self { deadlock: true, freed: true, finally: None, ltl: None, fair: false }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SearchOptions {
    pub memory_megabytes: u32,
    pub depth_max: u32,
    /// Whether states are kept as bits only: more of them fit, and some may be missed.
    pub bitstate: bool,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { memory_megabytes: 1024, depth_max: 100_000, bitstate: false }
    }
}

impl Check {
    /// Reads a check file. An error says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let check: Check = toml::from_str(text).map_err(|error| error.to_string())?;
        check.examine()?;
        Ok(check)
    }

    fn examine(&self) -> Result<(), String> {
        if self.source.files.is_empty() {
            return Err("source.files names no C file".to_owned());
        }
        if self.functions.is_empty() {
            return Err("'functions' names no function to extract".to_owned());
        }
        if self.processes.is_empty() {
            return Err("there is no [[process]]: say which functions run beside one another".to_owned());
        }
        let mut names: Vec<&str> = Vec::new();
        for process in &self.processes {
            let identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let begins = process.name.starts_with(|c: char| c.is_ascii_alphabetic());
            if !begins || !process.name.chars().all(identifier) || process.name == "init" {
                return Err(format!(
                    "process '{}': a name is letters, digits and '_', and is not 'init'",
                    process.name
                ));
            }
            if names.contains(&process.name.as_str()) {
                return Err(format!("two processes are called '{}'", process.name));
            }
            names.push(&process.name);
            if !self.functions.contains(&process.function) {
                return Err(format!(
                    "process '{}' runs '{}', which is not among 'functions'",
                    process.name, process.function
                ));
            }
        }
        if self.processes.len() > PROCESSES_MAX {
            return Err(format!("{} processes are more than {PROCESSES_MAX}", self.processes.len()));
        }
        Ok(())
    }
}

/// The most processes of a model; Spin cannot run more beside one another.
pub const PROCESSES_MAX: usize = 200;

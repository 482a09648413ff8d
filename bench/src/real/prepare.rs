//! A kernel's sources with a fault and our tests in them, built by the command that the user gave.

use super::edit::Fault;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The faults of a kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

/// Puts our tests into a copy of the sources.
type AddTests = fn(&Path) -> Result<(), String>;
/// Finds what a build has left.
type Built = fn(&Path) -> Result<Kernel, String>;

pub struct Course {
    pub name: &'static str,
    pub suite: Suite,
    sources: PathBuf,
    build: String,
    add_tests: AddTests,
    built: Built,
}

/// A kernel that can be booted.
pub struct Kernel {
    pub file: PathBuf,
    pub symbols: Option<PathBuf>,
    pub description: String,
}

impl Course {
    pub fn xv6(sources: &Path, build: &str) -> Result<Self, String> {
        Self::new("xv6", sources, build, include_str!("xv6.toml"), (add_programs, built_xv6))
    }

    pub fn pintos(sources: &Path, build: &str) -> Result<Self, String> {
        Self::new("pintos", sources, build, include_str!("pintos.toml"), (add_kernel_tests, built_pintos))
    }

    fn new(
        name: &'static str,
        sources: &Path,
        build: &str,
        suite: &str,
        (add_tests, built): (AddTests, Built),
    ) -> Result<Self, String> {
        let suite = toml::from_str(suite).map_err(|e| format!("the faults of {name}: {e}"))?;
        if !sources.is_dir() {
            return Err(format!("{}: there are no sources of {name}", sources.display()));
        }
        Ok(Self { name, suite, sources: sources.to_owned(), build: build.to_owned(), add_tests, built })
    }

    /// The kernel with the fault, if one is given, in the folder `at`.
    pub fn build(&self, at: &Path, fault: Option<&Fault>) -> Result<Kernel, String> {
        let sources = at.join("sources");
        let _ = fs::remove_dir_all(&sources);
        copy(&self.sources, &sources)?;
        (self.add_tests)(&sources)?;
        if let Some(fault) = fault {
            fault.apply(&sources)?;
        }
        let log = at.join("build.log");
        let file = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        let status = Command::new("sh")
            .args(["-c", &self.build])
            .current_dir(&sources)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .status()
            .map_err(|e| format!("{}: {e}", self.build))?;
        if !status.success() {
            let why = fs::read_to_string(&log).unwrap_or_default();
            let first = why.lines().find(|line| line.contains("error")).unwrap_or("see the log").to_owned();
            return Err(format!("'{}' failed: {first} ({})", self.build, log.display()));
        }
        let kernel = (self.built)(&sources)?;
        // What is booted stays when the sources go.
        let keep = |path: PathBuf| {
            let to = at.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &to).map(|_| to).map_err(|e| format!("{}: {e}", path.display()))
        };
        let symbols = kernel.symbols.map(keep).transpose()?;
        Ok(Kernel { file: keep(kernel.file)?, symbols, description: kernel.description })
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed)?;
        match kind.is_dir() {
            true if entry.file_name() == ".git" => {}
            true => copy(&path, &target)?,
            // Keeps the time, so that what was built is not built again.
            false => {
                fs::copy(&path, &target).map_err(failed)?;
                let times = entry.metadata().and_then(|data| data.modified()).map_err(failed)?;
                let file = fs::File::options().append(true).open(&target);
                let _ = file.and_then(|file| file.set_modified(times));
            }
        }
    }
    Ok(())
}

/// Changes a file: the first line with `line`, anywhere.
fn change(path: &Path, line: &str, with: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let text = fs::read_to_string(path).map_err(failed)?;
    if !text.contains(line) {
        return Err(format!("{}: there is no line with '{line}'", path.display()));
    }
    fs::write(path, text.replacen(line, with, 1)).map_err(failed)
}

const PROGRAMS: [(&str, &str); 8] = [
    ("rf_pipe", include_str!("xv6/rf_pipe.c")),
    ("rf_ping", include_str!("xv6/rf_ping.c")),
    ("rf_big", include_str!("xv6/rf_big.c")),
    ("rf_readers", include_str!("xv6/rf_readers.c")),
    ("rf_fork", include_str!("xv6/rf_fork.c")),
    ("rf_forks", include_str!("xv6/rf_forks.c")),
    ("rf_files", include_str!("xv6/rf_files.c")),
    ("rf_same", include_str!("xv6/rf_same.c")),
];

fn add_programs(sources: &Path) -> Result<(), String> {
    let mut list = "UPROGS=\\\n".to_owned();
    for (name, text) in PROGRAMS {
        fs::write(sources.join(format!("{name}.c")), text).map_err(|e| format!("{name}: {e}"))?;
        list += &format!("\t_{name}\\\n");
    }
    change(&sources.join("Makefile"), "UPROGS=\\\n", &list)
}

fn built_xv6(sources: &Path) -> Result<Kernel, String> {
    Ok(Kernel { file: sources.join("kernelmemfs"), symbols: None, description: "xv6".into() })
}

const KERNEL_TESTS: [&str; 7] =
    ["rf-sema", "rf-post", "rf-lock", "rf-try", "rf-cond", "rf-broadcast", "rf-tids"];

fn add_kernel_tests(sources: &Path) -> Result<(), String> {
    let tests = sources.join("src/tests/threads");
    let path = tests.join("rf.c");
    fs::write(&path, include_str!("pintos/rf.c")).map_err(|e| format!("{}: {e}", path.display()))?;
    let function = |name: &str| format!("test_{}", name.replace('-', "_"));
    let table: String =
        KERNEL_TESTS.iter().map(|name| format!("    {{\"{name}\", {}}},\n", function(name))).collect();
    let declared: String =
        KERNEL_TESTS.iter().map(|name| format!("extern test_func {};\n", function(name))).collect();
    let first = "{\"alarm-single\"";
    change(&tests.join("tests.c"), first, &format!("{}    {first}", table.trim_start()))?;
    let first = "extern test_func test_alarm_single;";
    change(&tests.join("tests.h"), first, &format!("{declared}{first}"))?;
    let first = "tests/threads_SRC += ";
    change(&tests.join("Make.tests"), first, &format!("{first}tests/threads/rf.c\n{first}"))
}

const SECTOR: usize = 512;
/// Where a boot sector has its table of partitions, and what an entry for the kernel says: active, and whose
/// it is.
const PARTITIONS_AT: usize = 446;
const ACTIVE: u8 = 0x80;
const PINTOS_KERNEL: u8 = 0x20;

/// Loader and kernel as a disk with one partition.
fn disk(loader: &[u8], kernel: &[u8]) -> Vec<u8> {
    let mut disk = loader.to_vec();
    disk.resize(SECTOR, 0);
    let sectors = kernel.len().div_ceil(SECTOR);
    disk[PARTITIONS_AT..SECTOR - 2].fill(0);
    disk[PARTITIONS_AT] = ACTIVE;
    disk[PARTITIONS_AT + 4] = PINTOS_KERNEL;
    disk[PARTITIONS_AT + 8..PARTITIONS_AT + 12].copy_from_slice(&1u32.to_le_bytes());
    disk[PARTITIONS_AT + 12..PARTITIONS_AT + 16].copy_from_slice(&(sectors as u32).to_le_bytes());
    disk[SECTOR - 2..].copy_from_slice(&[0x55, 0xaa]);
    disk.extend_from_slice(kernel);
    disk.resize((1 + sectors) * SECTOR, 0);
    disk
}

fn built_pintos(sources: &Path) -> Result<Kernel, String> {
    let build = sources.join("src/threads/build");
    let read = |name: &str| {
        let path = build.join(name);
        fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let file = build.join("threads.dsk");
    fs::write(&file, disk(&read("loader.bin")?, &read("kernel.bin")?))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Kernel { file, symbols: Some(build.join("kernel.o")), description: "pintos".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_whole() {
        for (suite, tests) in [
            (include_str!("xv6.toml"), PROGRAMS.map(|(name, _)| name).to_vec()),
            (include_str!("pintos.toml"), KERNEL_TESTS.to_vec()),
        ] {
            let suite: Suite = toml::from_str(suite).unwrap();
            assert!(suite.faults.len() >= 12);
            for fault in &suite.faults {
                assert!(tests.contains(&fault.test.as_str()), "{}: {}", fault.name, fault.test);
            }
        }
    }

    #[test]
    fn a_disk_has_whole_sectors() {
        let disk = disk(&[1; 400], &[2; 700]);
        assert_eq!(disk.len(), 3 * SECTOR);
        assert_eq!((disk[446], disk[450], disk[454], disk[458], disk[510]), (0x80, 0x20, 1, 2, 0x55));
        // An edit of nothing changes nothing.
        assert_eq!(crate::real::edit::edited("f(x)\n{\n a\n}\n", "f", "a", "a").unwrap(), "f(x)\n{\n a\n}\n");
    }
}

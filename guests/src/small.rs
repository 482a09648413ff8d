//! A small Unix with a shell, a disk and a console that scrolls: the stand-in for kernels that others write.

use crate::tiny::link;
use crate::toolchain::{BuildError, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its description.
pub const DESCRIPTION: &str = include_str!("../small/small.toml");

/// Functions that the description names are there to be entered.
const NOT_INLINED: &[&str] = &["-fno-early-inlining", "-fno-inline-functions-called-once"];
const SECTOR: usize = 512;
/// How long the name of a program may be, with its NUL.
const NAME: usize = 12;
/// The numbers that programs add to are behind the programs.
const SECTORS: usize = 80;
const NUMBERS: usize = 64;

/// What one build leaves behind; the programs, with their symbols, are in the folder `programs` beside it.
pub struct Small {
    pub kernel: PathBuf,
    pub disk: PathBuf,
}

/// Builds kernel, programs and disk into `out`, with these macros defined: names of its faults.
pub fn build(macros: &[&str], out: &Path) -> Result<Small, BuildError> {
    let sources = crate::sources().join("small");
    let built = Small { kernel: out.join("kernel"), disk: out.join("disk") };
    let programs = out.join("programs");
    fs::create_dir_all(&programs).map_err(|error| BuildError::Io(programs.clone(), error))?;
    let flags: Vec<String> = NOT_INLINED.iter().map(|flag| (*flag).to_owned()).collect();
    let chosen = macros.iter().map(|name| format!("-D{name}"));
    let kernel_flags: Vec<String> = flags.iter().cloned().chain(chosen).collect();
    link(&kernel_flags, &sources.join("small.ld"), &c_files(&sources)?, &built.kernel)?;

    let mut contents = Vec::new();
    for source in c_files(&sources.join("programs"))? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let program = programs.join(&name);
        link(&flags, &sources.join("programs/user.ld"), &[source], &program)?;
        let plain = out.join(format!("{name}.bin"));
        run("objcopy", Command::new("objcopy").args(["-O", "binary"]).arg(&program).arg(&plain))?;
        let bytes = fs::read(&plain).map_err(|error| BuildError::Io(plain, error))?;
        contents.push((name, bytes));
    }
    fs::write(&built.disk, disk(&contents)).map_err(|error| BuildError::Io(built.disk.clone(), error))?;
    Ok(built)
}

fn c_files(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let entries = fs::read_dir(folder).map_err(|_| BuildError::NoSources(folder.to_owned()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    Ok(files)
}

/// A directory in the first sector (name, first sector, sectors), the programs, and numbers that are zero.
fn disk(programs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut directory, mut rest) = (Vec::new(), Vec::new());
    for (name, bytes) in programs {
        let at = 1 + rest.len() / SECTOR;
        let sectors = bytes.len().div_ceil(SECTOR);
        assert!(name.len() < NAME && at + sectors <= NUMBERS, "{name} does not fit on the disk");
        let mut line = name.as_bytes().to_vec();
        line.resize(NAME, 0);
        line.extend((at as u32).to_le_bytes());
        line.extend((sectors as u32).to_le_bytes());
        directory.extend(line);
        rest.extend(bytes);
        rest.resize((at - 1 + sectors) * SECTOR, 0);
    }
    assert!(directory.len() <= SECTOR, "too many programs for the directory");
    directory.resize(SECTOR, 0);
    directory.extend(rest);
    directory.resize(SECTORS * SECTOR, 0);
    directory
}

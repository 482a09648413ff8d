//! A kernel in one file, with and without annotations.

use crate::toolchain::{BuildError, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's description for when it says nothing of itself.
pub const DESCRIPTION: &str = include_str!("../tiny/tiny.toml");
/// The kernel's description for when it says what it does by annotations.
pub const ANNOTATED: &str = include_str!("../tiny/annotated.toml");

const FLAGS: &[&str] = &[
    "-m32",
    "-std=gnu11",
    "-ffreestanding",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-pie",
    "-fcf-protection=none",
    "-mgeneral-regs-only",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--build-id=none,-z,noexecstack",
];

/// Builds the kernel into `out` with these macros defined: `ROCKFALL_OFF`, and names of its faults.
pub fn build(macros: &[&str], out: &Path) -> Result<PathBuf, BuildError> {
    build_file("tiny", macros, out)
}

/// Builds the kernel that is one file in the folder of its name.
pub(crate) fn build_file(name: &str, macros: &[&str], out: &Path) -> Result<PathBuf, BuildError> {
    std::fs::create_dir_all(out).map_err(|error| BuildError::Io(out.to_owned(), error))?;
    let sources = crate::sources().join(name);
    let kernel = out.join("kernel");
    let flags: Vec<String> = macros.iter().map(|name| format!("-D{name}")).collect();
    let script = sources.join(name).with_extension("ld");
    link(&flags, &script, &[sources.join(name).with_extension("c")], &kernel)?;
    Ok(kernel)
}

/// Compiles sources and links them with a script, in one go.
pub(crate) fn link(
    flags: &[String],
    script: &Path,
    sources: &[PathBuf],
    to: &Path,
) -> Result<(), BuildError> {
    let mut command = Command::new("gcc");
    command.args(FLAGS).args(flags).arg("-T").arg(script).args(sources).arg("-o").arg(to);
    run("gcc", &mut command).map(drop)
}

/// Makes a copy of a kernel file without symbols and debugging information.
pub fn strip(kernel: &Path) -> Result<PathBuf, BuildError> {
    let stripped = kernel.with_extension("stripped");
    run("objcopy", Command::new("objcopy").arg("--strip-all").arg(kernel).arg(&stripped))?;
    Ok(stripped)
}

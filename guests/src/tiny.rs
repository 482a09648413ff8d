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
    let error = |path: &Path| {
        let path = path.to_owned();
        move |error| BuildError::Io(path, error)
    };
    std::fs::create_dir_all(out).map_err(error(out))?;
    let sources = crate::sources().join(name);
    let kernel = out.join("kernel");
    let mut command = Command::new("gcc");
    command.args(FLAGS).args(macros.iter().map(|name| format!("-D{name}")));
    command.arg("-T").arg(sources.join(name).with_extension("ld"));
    command.arg(sources.join(name).with_extension("c")).arg("-o").arg(&kernel);
    run("gcc", &mut command)?;
    Ok(kernel)
}

/// Makes a copy of a kernel file without symbols and debugging information.
pub fn strip(kernel: &Path) -> Result<PathBuf, BuildError> {
    let stripped = kernel.with_extension("stripped");
    run("objcopy", Command::new("objcopy").arg("--strip-all").arg(kernel).arg(&stripped))?;
    Ok(stripped)
}

//! A kernel for several processors in one file.

use crate::tiny::build_file;
use crate::toolchain::BuildError;
use std::path::{Path, PathBuf};

/// Its description, which is needed for its panics, its locks and its heap only.
pub const DESCRIPTION: &str = include_str!("../smp/smp.toml");

/// Builds it into `out` with these macros defined: the test, `MENDED`, `CPUS=3`.
pub fn build(macros: &[&str], out: &Path) -> Result<PathBuf, BuildError> {
    build_file("smp", macros, out)
}

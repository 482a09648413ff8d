//! The kernel that a check file names: a file, or the bundled one built with faults.

use crate::files::Files;
use crate::target;
use campaign::Failure;
use campaign::described::{description, memory_needed};
use campaign::recipe::Recipe;
use campaign::target::{BUNDLED_KERNEL, Target};
use promela::check::KernelUnderTest;
use std::path::{Path, PathBuf};

/// Whether the files that a check names for its kernel are there, so that this is known before the work
/// begins.
pub fn expect_files(kernel: &KernelUnderTest, folder: &Path, instead: Option<&Path>) -> Result<(), Failure> {
    let image = match instead {
        Some(path) => Some(path.to_owned()),
        None if kernel.image == BUNDLED_KERNEL || kernel.image.is_empty() || !kernel.modules.is_empty() => {
            None
        }
        None => Some(folder.join(&kernel.image)),
    };
    let others =
        kernel.disks.iter().chain(&kernel.symbols).chain(&kernel.modules).map(|path| folder.join(path));
    for path in image.into_iter().chain(others) {
        std::fs::metadata(&path).map_err(|error| Failure::Unreadable { path, error })?;
    }
    Ok(())
}

/// Makes the target; `folder` is that of the check file, `work` one for what is built, `instead` another
/// kernel file.
pub fn target(
    kernel: &KernelUnderTest,
    folder: &Path,
    work: &Path,
    instead: Option<&Path>,
) -> Result<Target, Failure> {
    let beside = folder.join(&kernel.description);
    let named = if beside.is_file() { beside.display().to_string() } else { kernel.description.clone() };
    let (description_name, description) = description(&Files::default(), &named)?;
    let memory_bytes = match kernel.memory_megabytes {
        Some(megabytes) => u64::from(megabytes) << 20,
        None => memory_needed(&description_name, &description)?,
    };
    let path = match instead {
        Some(path) => path.to_owned(),
        None if kernel.image == BUNDLED_KERNEL => build(&kernel.faults, work)?,
        None => folder.join(&kernel.image),
    };
    let beside = |paths: &[String]| -> Vec<PathBuf> { paths.iter().map(|path| folder.join(path)).collect() };
    target::make(Recipe {
        kernel: path,
        description_name,
        description,
        test: kernel.test.clone(),
        memory_bytes,
        append: kernel.append.clone(),
        disks: beside(&kernel.disks),
        symbols: kernel.symbols.as_ref().map(|path| folder.join(path)),
        no_leaks: kernel.no_leaks,
        ..Recipe::default()
    })
}

/// Builds the bundled kernel.
fn build(faults: &[String], work: &Path) -> Result<PathBuf, Failure> {
    let build = guests::Build { faults: faults.to_vec(), ..guests::Build::default() };
    let image = build.image(&work.join("kernel")).map_err(|error| {
        Failure::BadInput(format!("the bundled kernel cannot be built: {error}; give a kernel file instead"))
    })?;
    Ok(image.kernel)
}

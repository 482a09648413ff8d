//! The user programs of a target: those that may be met, and the one under test.

use crate::described::description;
use crate::failure::Failure;
use crate::host::Host;
use crate::recipe::{Recipe, TestedRecipe};
use crate::target::{BUNDLED_KERNEL, file_hash, misfit, read};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which parts of a program's library are tested although they are trusted otherwise.
#[derive(Clone, Copy)]
pub struct Parts {
    pub heap: bool,
    pub locks: bool,
}

/// A kernel with a program under test, and that program among those that may be met.
pub fn with_program(
    tested: &mut TestedRecipe,
    test: &str,
    parts: Parts,
    kernel: &Arc<Kernel>,
    others: Vec<Arc<Image>>,
    host: &dyn Host,
) -> Result<(Arc<Kernel>, Vec<Arc<Image>>), Failure> {
    let path = &tested.program;
    let file = read(host, path)?;
    let hash = file_hash(&file);
    if !tested.image.is_empty() && tested.image != hash {
        return Err(Failure::BadInput(format!(
            "{} is not the program of this finding: its hash is {hash}, the finding's is {}; give the right file with \
             --program",
            path.display(),
            tested.image
        )));
    }
    tested.image = hash;
    let library = match &tested.library {
        Some(text) => text.clone(),
        None => {
            let Some(name) = &kernel.library else {
                return Err(Failure::BadFlag(format!(
                    "the description of {} names no thread library: describe the program's with --library",
                    kernel.name
                )));
            };
            let (name, text) = description(host, name)?;
            tested.library_name = name;
            tested.library.insert(text).clone()
        }
    };
    // The kernel knows it by the name that is typed, whatever the file is called.
    let name = test.split_whitespace().next().unwrap_or_default();
    let image = Image::parse(name, &file).map_err(|error| Failure::BadInput(error.to_string()))?;
    let mut parsed = Description::parse(&tested.library_name, &library)
        .map_err(|problem| Failure::BadInput(problem.to_string()))?;
    let missing = |what: &str| {
        Err(Failure::BadFlag(format!(
            "the description of the program's library, {}, has no {what}",
            tested.library_name
        )))
    };
    if parts.heap && parsed.tables.heap.is_empty() {
        return missing("[[heap]] for --test-heap to test");
    }
    if parts.locks && parsed.tables.lock.is_empty() {
        return missing("[[lock]] for --test-locks to test");
    }
    if parts.heap {
        parsed.test_heaps();
    }
    if parts.locks {
        let name = name.rsplit('/').next().unwrap_or(name);
        parsed.tables.lock.iter_mut().for_each(|lock| lock.as_mut().tested_by.push(name.to_owned()));
    }
    let kernel = kernel.with_program(&parsed, &image, name).map_err(|problems| {
        misfit(&format!("the library's description does not fit {}", path.display()), &image, &problems)
    })?;
    let base = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let others = others.into_iter().filter(|other| base(&other.name) != base(name));
    Ok((kernel, std::iter::once(image.clone()).chain(others).collect()))
}

/// The ELF files of the user programs, as far as there are any.
pub fn programs(recipe: &Recipe, host: &dyn Host) -> Result<Vec<Arc<Image>>, Failure> {
    let home = match recipe.kernel == Path::new(BUNDLED_KERNEL) {
        true => Some(recipe.kernel.as_path()),
        false => recipe.kernel.parent(),
    };
    let mut paths = match (&recipe.programs, home) {
        (Some(folder), _) => {
            host.folder(folder).map_err(|error| Failure::Unreadable { path: folder.clone(), error })?
        }
        // Where there is no such folder there are no programs.
        (None, Some(home)) => host.folder(&home.join("programs")).unwrap_or_default(),
        (None, None) => Vec::new(),
    };
    paths.sort();
    let parse = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        Image::parse(name, &host.read(path).ok()?).ok()
    };
    Ok(paths.iter().filter_map(parse).collect())
}

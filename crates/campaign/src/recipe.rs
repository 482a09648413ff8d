//! How to make a target again: what a finding file says of the kernel, its description, the test and the
//! machine.

use crate::described::{description, memory_needed};
use crate::failure::Failure;
use crate::host::Host;
use crate::limits::Changes;
use crate::target::BUNDLED_KERNEL;
use detect::Signature;
use guest::driving::uniprocessor::transactions::Mode;
use guest::elf::image::Image;
use machine::Tsx;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// In how many folders around the kernel its sources are looked for.
const ANCESTORS_MAX: usize = 4;

/// How to make the same target again; part of a finding file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recipe {
    pub kernel: PathBuf,
    /// The hash of the kernel file, to which the finding belongs.
    pub image: String,
    pub description_name: String,
    /// The text of the description, so that the finding file suffices by itself.
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
    /// Whether memory that stays allocated is no finding.
    #[serde(default)]
    pub no_leaks: bool,
    /// Whether the allocator is tested too.
    #[serde(default)]
    pub test_heap: bool,
    /// Whether the locks of the program's library are tested too.
    #[serde(default)]
    pub test_locks: bool,
    /// Whether broken rules about locks are findings.
    #[serde(default)]
    pub lockdep: bool,
    /// Threads of the program have store buffers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tso: bool,
    /// On several processors, the moments of timers and of interrupts between processors are chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupts: bool,
    /// Whether there are transactions, and how they are explored.
    #[serde(default, skip_serializing_if = "TransactionRecipe::is_default")]
    pub transactions: TransactionRecipe,
    /// Findings that were known before and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Signature>,
    /// Limits that differ from the usual ones.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub limits: Changes,
    /// The file of the program under test and how its library is described, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<TestedRecipe>,
    /// How a Linux kernel is booted to its test, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxRecipe>,
    /// With another kernel on several processors: where its test begins and ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionsRecipe>,
}

impl Recipe {
    /// A test of a kernel, with a description by name or path, on the machine that the description asks for.
    pub fn described(host: &dyn Host, kernel: &Path, named: &str, test: &str) -> Result<Self, Failure> {
        let (description_name, description) = description(host, named)?;
        let memory_bytes = memory_needed(&description_name, &description)?;
        let (kernel, test) = (kernel.to_owned(), test.to_owned());
        Ok(Self { kernel, description_name, description, test, memory_bytes, ..Self::default() })
    }

    /// The text of a source file as the debugging information names it.
    pub fn source(&self, host: &dyn Host, file: &str) -> Option<String> {
        let read = |path: PathBuf| String::from_utf8(host.read(&path).ok()?).ok();
        let bundled = self.kernel == Path::new(BUNDLED_KERNEL);
        if bundled && let Some(text) = read(self.kernel.join(file)) {
            return Some(text);
        }
        // The end of the path is the same wherever the files went.
        let parts: Vec<_> = Path::new(file).components().collect();
        let named = self.sources.iter().flat_map(|root| {
            (0..parts.len()).map(|from| root.join(parts[from..].iter().collect::<PathBuf>().as_path()))
        });
        // Kernels and programs are mostly built below their sources; a disk may have been made elsewhere.
        let kernel = (!bundled).then_some(&self.kernel);
        let program = self.tested.as_ref().map(|tested| &tested.program);
        let built = kernel.into_iter().chain(&self.symbols).chain(program);
        let above = built.flat_map(|file| file.ancestors().skip(1).take(ANCESTORS_MAX));
        let above = above.map(|root| root.join(file));
        read(PathBuf::from(file)).or_else(|| named.chain(above).find_map(read))
    }

    /// Whether processors are what is scheduled.
    #[must_use]
    pub const fn is_multiprocessor(&self) -> bool {
        self.linux.is_some() || self.functions.is_some()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestedRecipe {
    pub program: PathBuf,
    /// The hash of the program's file.
    pub image: String,
    pub library_name: String,
    /// The description of its library; `None`: the one that the kernel's description names.
    pub library: Option<String>,
}

/// How to boot the same machine again; part of a finding file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxRecipe {
    /// The release of the kernel, as `uname -r` prints it.
    pub release: String,
    pub cpus: u8,
    /// The packed initial file system, which holds the test, and its hash.
    pub initramfs: PathBuf,
    pub initramfs_hash: String,
    /// The input that the finding is about, if the test has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u32>,
}

/// Where a test of another kernel begins and ends; part of a finding file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionsRecipe {
    pub cpus: u8,
    pub begin: Vec<String>,
    pub end: Vec<String>,
}

/// The options about transactions that are part of a finding file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TransactionRecipe {
    /// Whether the processors have transactions; `None`: if the code uses them.
    pub tsx: Option<bool>,
    #[serde(default)]
    pub mode: Option<Mode>,
    #[serde(default)]
    pub line_bytes: Option<u32>,
    /// Sets and ways of the cache.
    #[serde(default)]
    pub cache: Option<(u32, u32)>,
}

impl TransactionRecipe {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What the processors of a Linux kernel have.
    pub fn tsx_of_linux(&self) -> Option<Tsx> {
        (self.tsx == Some(true)).then(|| self.adapted(Mode::Real.tsx()))
    }

    fn adapted(&self, tsx: Tsx) -> Tsx {
        let (sets, ways) = self.cache.unwrap_or((tsx.sets, tsx.ways));
        Tsx { line_bytes: self.line_bytes.unwrap_or(tsx.line_bytes), sets, ways, ..tsx }
    }

    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    /// The transactional memory of the processors, for code in these images.
    pub fn tsx<'a>(&self, mut code: impl Iterator<Item = &'a Image>) -> Result<Option<Tsx>, Failure> {
        let has = self.tsx.unwrap_or_else(|| code.any(Image::has_transactions));
        if !has && self.mode.is_some() {
            let what = "--transactions: no code here begins a transaction (XBEGIN); if it is made at run time, add --tsx";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        Ok(has.then(|| self.adapted(self.mode().tsx())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::time::Duration;

    /// A computer with one file.
    struct OneFile(&'static str);

    impl Host for OneFile {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            match path == Path::new(self.0) {
                true => Ok(b"int x;".to_vec()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }

        fn folder(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
            Ok(Vec::new())
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn stop_asked(&self) -> bool {
            false
        }
    }

    /// The kernel on a disk has its symbols in a file where it was built, and its sources around that.
    #[test]
    fn sources_are_found_around_the_symbols() {
        let host = OneFile("/os/src/build/../devices/ide.c");
        let mut recipe = Recipe { kernel: "/disks/os.dsk".into(), ..Recipe::default() };
        assert_eq!(recipe.source(&host, "../devices/ide.c"), None);
        recipe.symbols = Some("/os/src/build/kernel.o".into());
        assert_eq!(recipe.source(&host, "../devices/ide.c").as_deref(), Some("int x;"));
    }
}

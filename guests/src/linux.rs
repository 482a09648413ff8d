//! From a test in C to a file system image that a Linux kernel boots into.
//!
//! Contract: `/init` is the helper of `guests/linux`; every test is linked with the harness (unless it has a
//! `main` of its own) and lies in `/tests`, kernel modules in `/modules`, both in the order given; other
//! files lie where the caller says. Programs are static and need nothing of the host but its C compiler. The
//! image is a function of its inputs and the compiler.

pub mod catalogue;
pub mod debian;
pub mod disk;
pub mod module;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cpio::Archive;
use crate::toolchain::{BuildError, run};

const SOURCES: [(&str, &str); 5] = [
    ("rockfall.h", include_str!("../../annotations/rockfall.h")),
    ("rockfall_test.h", include_str!("../linux/rockfall_test.h")),
    ("harness.c", include_str!("../linux/harness.c")),
    ("helpers.c", include_str!("../linux/helpers.c")),
    ("init.c", include_str!("../linux/init.c")),
];
/// Flags of the compiler: with debugging information, so that a report can name the lines of a test.
const FLAGS: [&str; 6] = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-static", "-g"];
/// Folders the helper mounts file systems on, and `/root`, which the kernel wants.
const FOLDERS: [&str; 7] = ["dev", "proc", "sys", "tmp", "root", "tests", "modules"];

/// A file of the host and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub from: PathBuf,
    /// Path in the image, without a leading slash.
    pub to: String,
}

/// What goes into an image.
#[derive(Clone, Debug, Default)]
pub struct Pack {
    /// C files, each a test or a program with `main`.
    pub tests: Vec<PathBuf>,
    /// Kernel modules, plain or packed with xz, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    pub files: Vec<Placed>,
}

/// What `guests/linux/fetch` has brought from Debian.
#[derive(Clone, Debug)]
pub struct Debian {
    pub kernel: PathBuf,
    pub module: PathBuf,
    pub busybox: PathBuf,
}

impl Debian {
    /// Finds what was fetched; `None`: nothing was.
    #[must_use]
    pub fn find() -> Option<Self> {
        let folder = crate::cache().with_file_name("linux");
        let module = ["loop.ko", "loop.ko.xz", "loop.ko.zst"].map(|name| folder.join(name));
        let found = Self {
            kernel: folder.join("vmlinuz"),
            module: module.into_iter().find(|path| path.exists())?,
            busybox: folder.join("busybox"),
        };
        found.kernel.exists().then_some(found)
    }
}

/// The C files in a folder of `guests/linux`, by name: `tests` or `checks`.
pub fn sources(folder: &str) -> Result<Vec<PathBuf>, BuildError> {
    let folder = crate::sources().join("linux").join(folder);
    let entries = fs::read_dir(&folder).map_err(|_| BuildError::NoSources(folder.clone()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    paths.sort();
    Ok(paths)
}

/// The folder of kernels that the tests of this repository use.
#[must_use]
pub fn test_store() -> debian::Store {
    debian::Store::new(&crate::cache().with_file_name("linux"))
}

/// The largest module that is accepted; a file that claims to be larger is damaged.
const MODULE_BYTES_MAX: u64 = 256 << 20;

/// A file's bytes, unpacked where its name ends in `.xz`.
fn unpacked(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, BuildError> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    let reader = lzma_rust2::XzReader::new(bytes.as_slice(), false);
    let done = reader.take(MODULE_BYTES_MAX).read_to_end(&mut plain);
    done.map_err(|e| BuildError::Io(path.to_owned(), e))?;
    Ok(plain)
}

/// A folder that is removed again.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, BuildError> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rockfall-pack-{}-{unique}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| BuildError::Io(path.clone(), e))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind in the folder for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|e| BuildError::Io(path.to_owned(), e))
}

impl Pack {
    /// Compiles and packs.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        let scratch = Scratch::new()?;
        let folder = &scratch.0;
        for (name, text) in SOURCES {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|e| BuildError::Io(path, e))?;
        }
        let gcc = || {
            let mut command = Command::new("gcc");
            command.args(FLAGS).arg("-I").arg(folder);
            command.arg(format!("-ffile-prefix-map={}=.", folder.display()));
            command
        };
        // A library, so that the harness is left out where a test has a `main`.
        let harness = folder.join("libharness.a");
        for name in ["harness", "helpers"] {
            let object = folder.join(format!("{name}.o"));
            run("gcc", gcc().args(["-c", "-o"]).arg(&object).arg(folder.join(format!("{name}.c"))))?;
            run("ar", Command::new("ar").arg("rcsD").arg(&harness).arg(&object))?;
        }
        let program = |source: &Path, name: &str| {
            let path = folder.join(name);
            run("gcc", gcc().arg("-o").arg(&path).arg(source).arg(&harness).args(["-lpthread", "-lm"]))?;
            read(&path)
        };

        let mut archive = Archive::default();
        FOLDERS.iter().for_each(|folder| archive.folder(folder));
        archive.file("init", &program(&folder.join("init.c"), "init")?);
        let mut names = Vec::new();
        for (number, test) in self.tests.iter().enumerate() {
            // The compiler must not take what is missing for an option, nor complain in its own words.
            fs::metadata(test).map_err(|e| BuildError::Io(test.clone(), e))?;
            let source = test.canonicalize().map_err(|e| BuildError::Io(test.clone(), e))?;
            let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if names.contains(&name) {
                return Err(BuildError::Unknown(format!("two tests are called {name}; rename one")));
            }
            names.push(name.clone());
            archive.file(&format!("tests/{name}"), &program(&source, &format!("test-{number}"))?);
        }
        for (number, module) in self.modules.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            let name = name.trim_end_matches(".xz");
            archive.file(&format!("modules/{number:02}-{name}"), &unpacked(module, read(module)?)?);
        }
        for Placed { from, to } in &self.files {
            archive.file(to.trim_start_matches('/'), &read(from)?);
        }
        Ok(archive.finish())
    }
}

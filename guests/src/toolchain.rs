//! Compiles and links the C sources, remembering every result by what it was made from.
//!
//! Concept: an object is named by a hash of its source, of all headers and of its flags, and an executable by
//! the hashes of its objects; what exists is not made again. Results are made under a temporary name and
//! renamed, so that two processes may build at once. Contract: equal sources and flags give equal bits in any
//! folder, for the same compiler: sources are named relative to the folder above them, and no path of the
//! host reaches the output.
//!
//! A macro goes only to those files that mention it, so that another fault recompiles one file or two. (A
//! macro that a header mentions goes to all files.)

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why there is no image.
#[derive(Debug)]
pub enum BuildError {
    /// A program of the toolchain could not be started.
    NoTool(&'static str),
    /// The sources are not where they were when this program was built.
    NoSources(PathBuf),
    /// A program of the toolchain refused; what it said.
    Refused(String),
    /// A fault or design that does not exist.
    #[allow(dead_code, reason = "the build script shares this file")]
    Unknown(String),
    Io(PathBuf, io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoTool(tool @ ("apt-cache" | "apt-get" | "dpkg")) => {
                write!(
                    f,
                    "Debian's packages are brought with `{tool}`, which was not found; is this a Debian?"
                )
            }
            BuildError::NoTool(tool @ "make") => {
                write!(f, "building a module needs `{tool}`, which was not found")
            }
            BuildError::NoTool(tool) => {
                write!(
                    f,
                    "building a guest kernel needs `{tool}`, which was not found; install gcc and binutils"
                )
            }
            BuildError::NoSources(path) => {
                write!(f, "the sources of the guest kernels are not at {}", path.display())
            }
            BuildError::Refused(text) => write!(f, "a guest does not build:\n{text}"),
            BuildError::Unknown(text) => f.write_str(text),
            BuildError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for BuildError {}

type Result<T> = std::result::Result<T, BuildError>;

const COMMON_FLAGS: &[&str] = &[
    "-m32",
    "-std=gnu11",
    "-ffreestanding",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O1",
    "-g",
    "-gdwarf-5",
    "-gno-record-gcc-switches",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-inline-functions-called-once",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-stack-protector",
    "-fno-pie",
    "-fcf-protection=none",
    "-mgeneral-regs-only",
    "-ffunction-sections",
];

const LINK_FLAGS: &[&str] = &[
    "-m32",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--build-id=none,--gc-sections,-z,noexecstack,-z,max-page-size=4096,-z,noseparate-code",
];

/// The folders of sources, each with those it includes headers from.
pub const FOLDERS: &[(&str, &[&str])] = &[
    ("pebbles", &["lib"]),
    ("lib", &[]),
    ("runtime", &["lib"]),
    ("threadlib", &["runtime", "lib"]),
    ("programs", &["threadlib", "runtime", "lib"]),
];

/// FNV-1a with 128 bits: names results, and is the same on every host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(u128);

impl Hash {
    pub fn new() -> Hash {
        Hash(0x6c62272e07bb014262b821756295c58d)
    }

    pub fn add(mut self, bytes: &[u8]) -> Hash {
        for &byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ byte as u128).wrapping_mul(0x0000000001000000000000000000013b);
        }
        self
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A file made by the toolchain, and the name of what it was made from.
#[derive(Clone)]
pub struct Made {
    pub path: PathBuf,
    pub hash: Hash,
}

/// One source to compile, relative to the folder above `guests`.
#[derive(Clone)]
pub struct Source {
    pub path: String,
    pub folder: &'static str,
    pub text: String,
}

pub struct Toolchain {
    /// The folder above `guests`.
    root: PathBuf,
    cache: PathBuf,
    /// Hash of all headers and of the compiler's version.
    base: Hash,
    /// The headers that the sources of a folder may include, by folder.
    headers: Vec<(&'static str, String)>,
}

impl Toolchain {
    /// `guests` is the folder of the sources, `cache` where results are kept.
    pub fn new(guests: &Path, cache: &Path) -> Result<Toolchain> {
        let root = guests.parent().ok_or_else(|| BuildError::NoSources(guests.to_owned()))?.to_owned();
        fs::create_dir_all(cache).map_err(|e| BuildError::Io(cache.to_owned(), e))?;
        let cache = cache.canonicalize().map_err(|e| BuildError::Io(cache.to_owned(), e))?;
        let version = run("gcc", Command::new("gcc").arg("-dumpfullversion"))?;
        let mut base = Hash::new().add(&version.stdout);
        let mut headers = Vec::new();
        for (folder, includes) in FOLDERS {
            let mut text = String::new();
            for folder in [folder].into_iter().chain(*includes) {
                for source in sources(&root, folder, &["h"])? {
                    base = base.add(source.path.as_bytes()).add(source.text.as_bytes());
                    text.push_str(&source.text);
                }
            }
            headers.push((*folder, text));
        }
        Ok(Toolchain { root, cache, base, headers })
    }

    pub fn sources(&self, folder: &'static str) -> Result<Vec<Source>> {
        sources(&self.root, folder, &["c", "S"])
    }

    /// A source that is not in the folders, kept in the cache under a name made of its text.
    pub fn keep(&self, name: &str, text: &str) -> Result<Source> {
        let folder = self.cache.join(Hash::new().add(text.as_bytes()).to_string());
        let path = folder.join(format!("{name}.c"));
        fs::create_dir_all(&folder).map_err(|e| BuildError::Io(folder.clone(), e))?;
        fs::write(&path, text).map_err(|e| BuildError::Io(path.clone(), e))?;
        Ok(Source { path: path.display().to_string(), folder: "programs", text: text.to_owned() })
    }

    /// Compiles all sources, on all cores.
    pub fn compile(&self, sources: &[Source], macros: &[String]) -> Result<Vec<Made>> {
        parallel(sources, |source| self.compile_one(source, macros))
    }

    /// The macros that can make a difference to this source.
    pub fn macros_for<'a>(&self, source: &Source, macros: &'a [String]) -> Vec<&'a String> {
        let headers = self.headers.iter().find(|(folder, _)| *folder == source.folder);
        let mentioned = |m: &&String| {
            let name = m.split_once('=').map_or(m.as_str(), |(name, _)| name);
            source.text.contains(name) || headers.is_some_and(|(_, text)| text.contains(name))
        };
        macros.iter().filter(mentioned).collect()
    }

    fn compiler(&self, macros: &[&String]) -> Command {
        let mut command = Command::new("gcc");
        command.current_dir(&self.root).args(COMMON_FLAGS);
        command.arg(format!("-ffile-prefix-map={}=.", self.root.display()));
        command.args(macros.iter().map(|m| format!("-D{m}")));
        command
    }

    pub fn compile_one(&self, source: &Source, macros: &[String]) -> Result<Made> {
        let macros = self.macros_for(source, macros);
        let mut hash = self.base.add(source.path.as_bytes()).add(source.text.as_bytes());
        for flag in COMMON_FLAGS {
            hash = hash.add(flag.as_bytes());
        }
        for name in &macros {
            hash = hash.add(name.as_bytes());
        }
        self.make(hash, "o", |to| {
            run("gcc", self.compiler(&macros).arg("-c").arg(&source.path).arg("-o").arg(to)).map(drop)
        })
    }

    /// Links objects with a script that lies in the sources.
    pub fn link(&self, script: &str, objects: &[Made]) -> Result<Made> {
        let script = self.root.join(script);
        let text = fs::read(&script).map_err(|e| BuildError::Io(script.clone(), e))?;
        let mut hash = self.base.add(&text);
        for flag in LINK_FLAGS {
            hash = hash.add(flag.as_bytes());
        }
        for object in objects {
            hash = hash.add(object.hash.to_string().as_bytes());
        }
        self.make(hash, "elf", |to| {
            let mut command = Command::new("gcc");
            command.current_dir(&self.cache).args(LINK_FLAGS).arg("-T").arg(&script).arg("-o").arg(to);
            run("gcc", command.args(objects.iter().map(|o| &o.path))).map(drop)
        })
    }

    pub fn strip(&self, executable: &Made) -> Result<Made> {
        self.make(executable.hash.add(b"stripped"), "stripped", |to| {
            run("strip", Command::new("strip").arg("-s").arg("-o").arg(to).arg(&executable.path)).map(drop)
        })
    }

    /// An object with the directory and the contents of the RAM disk.
    pub fn ramdisk(&self, files: &[(String, Made)]) -> Result<Made> {
        let mut hash = self.base.add(b"ramdisk");
        let mut names = String::new();
        let mut text = String::from(
            "        .section .ramdisk, \"a\"\n        .globl ramdisk\n        .align 4\nramdisk:\n",
        );
        for (i, (name, file)) in files.iter().enumerate() {
            hash = hash.add(name.as_bytes()).add(file.hash.to_string().as_bytes());
            text += &format!("        .long name_{i}, start_{i}, end_{i}\n");
            names += &format!("name_{i}: .asciz \"{name}\"\n        .align 4\n");
            names += &format!("start_{i}: .incbin \"{}\"\nend_{i}:\n", file.path.display());
        }
        text += &format!("        .long 0, 0, 0\n{names}        .section .note.GNU-stack, \"\", @progbits\n");
        self.make(hash, "o", |to| {
            let source = to.with_extension("s");
            fs::write(&source, &text).map_err(|e| BuildError::Io(source.clone(), e))?;
            let done = run("gcc", Command::new("gcc").args(["-m32", "-c"]).arg(&source).arg("-o").arg(to));
            fs::remove_file(&source).map_err(|e| BuildError::Io(source, e))?;
            done.map(drop)
        })
    }

    /// The result of that name, made now if it is not there.
    fn make(&self, hash: Hash, kind: &str, recipe: impl FnOnce(&Path) -> Result<()>) -> Result<Made> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let path = self.cache.join(format!("{hash}.{kind}"));
        if !path.exists() {
            let unique = NEXT.fetch_add(1, Ordering::Relaxed);
            let new = self.cache.join(format!("{hash}-{}-{unique}", std::process::id()));
            recipe(&new)?;
            fs::rename(&new, &path).map_err(|e| BuildError::Io(path.clone(), e))?;
        }
        Ok(Made { path, hash })
    }
}

/// The files of a folder with one of these extensions, in order of their names.
fn sources(root: &Path, folder: &'static str, extensions: &[&str]) -> Result<Vec<Source>> {
    let path = root.join("guests").join(folder);
    let entries = fs::read_dir(&path).map_err(|_| BuildError::NoSources(path.clone()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| BuildError::Io(path.clone(), e))?.path();
        let (Some(name), Some(extension)) = (path.file_name(), path.extension()) else { continue };
        if extensions.iter().any(|e| *e == extension) {
            let text = fs::read_to_string(&path).map_err(|e| BuildError::Io(path.clone(), e))?;
            found.push(Source { path: format!("guests/{folder}/{}", name.to_string_lossy()), folder, text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

pub fn run(tool: &'static str, command: &mut Command) -> Result<Output> {
    let output = command.env("LC_ALL", "C").output().map_err(|_| BuildError::NoTool(tool))?;
    if output.status.success() {
        Ok(output)
    } else {
        Err(BuildError::Refused(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// Applies a function to all items, on all cores; results in order, or the first error.
pub fn parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < items.len()) {
                    let result = work(&items[i]);
                    results.lock().unwrap().push((i, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

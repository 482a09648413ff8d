//! From a choice of faults and designs to a bootable image.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::toolchain::{BuildError, FOLDERS, Hash, Made, Source, Toolchain, parallel};

/// What one build leaves behind.
#[derive(Clone, Debug)]
pub struct Image {
    /// The Multiboot kernel with symbols and DWARF; the programs are inside.
    pub kernel: PathBuf,
    /// The programs once more, each with symbols and DWARF.
    pub programs: PathBuf,
}

/// A program that is not among the sources: its name and its C source.
pub struct Program {
    pub name: String,
    pub source: String,
}

/// Programs as name and executable.
fn programs(
    tools: &Toolchain,
    macros: &[String],
    more: &[Program],
) -> Result<Vec<(String, Made)>, BuildError> {
    let mut sources = tools.sources("programs")?;
    for program in more {
        sources.push(tools.keep(&program.name, &program.source)?);
    }
    let mut library = Vec::new();
    for folder in ["runtime", "threadlib", "lib"] {
        library.extend(tools.sources(folder)?);
    }
    let all: Vec<Source> = sources.iter().chain(&library).cloned().collect();
    let objects = tools.compile(&all, macros)?;
    let (own, shared) = objects.split_at(sources.len());
    let jobs: Vec<(&Source, &Made)> = sources.iter().zip(own).collect();
    parallel(&jobs, |(source, object)| {
        let name = Path::new(&source.path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut objects = vec![Made::clone(object)];
        objects.extend_from_slice(shared);
        Ok((name, tools.link("guests/runtime/program.ld", &objects)?))
    })
}

/// A program that somebody else has made: an executable whose first function gets argc, argv, and the highest
/// and the lowest address of the stack, as the course has it. Its name is that of the file, without the
/// extension.
fn executable(path: &Path) -> Result<(String, Made), BuildError> {
    const ELF32: [u8; 5] = *b"\x7fELF\x01";
    const EXECUTABLE_386: [u8; 4] = [2, 0, 3, 0];
    let refused = |why: &str| BuildError::Unknown(format!("{}: {why}", path.display()));
    let bytes = fs::read(path).map_err(|e| BuildError::Io(path.to_owned(), e))?;
    if !bytes.starts_with(&ELF32) || bytes.get(16..20) != Some(&EXECUTABLE_386) {
        return Err(refused("this is no program for 32-bit x86; link it with -m32 -static"));
    }
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
        return Err(refused("a program's name has letters, digits, '_', '-' and '.'"));
    }
    Ok((name.to_owned(), Made { path: path.to_owned(), hash: Hash::new().add(&bytes) }))
}

/// Builds kernel and programs with these macros defined, and puts them into a folder.
pub fn build(
    guests: &Path,
    cache: &Path,
    macros: &[String],
    more: &[Program],
    out: &Path,
) -> Result<Image, BuildError> {
    build_with(guests, cache, macros, (more, &[]), out)
}

/// Builds an image with programs that somebody else has made among its own; of two with one name theirs
/// counts.
pub fn build_with(
    guests: &Path,
    cache: &Path,
    macros: &[String],
    (more, executables): (&[Program], &[PathBuf]),
    out: &Path,
) -> Result<Image, BuildError> {
    let tools = Toolchain::new(guests, cache)?;
    let foreign = executables.iter().map(|path| executable(path)).collect::<Result<Vec<_>, _>>()?;
    let mut programs = programs(&tools, macros, more)?;
    programs.retain(|(name, _)| foreign.iter().all(|(theirs, _)| theirs != name));
    programs.extend(foreign);
    let stripped = parallel(&programs, |(name, file)| Ok((name.clone(), tools.strip(file)?)))?;
    let mut sources = tools.sources("pebbles")?;
    sources.extend(tools.sources("lib")?);
    let mut objects = tools.compile(&sources, macros)?;
    objects.push(tools.ramdisk(&stripped)?);
    let kernel = tools.link("guests/pebbles/kernel.ld", &objects)?;

    let image = Image { kernel: out.join("kernel"), programs: out.join("programs") };
    fs::create_dir_all(&image.programs).map_err(|e| BuildError::Io(image.programs.clone(), e))?;
    install(&kernel.path, &image.kernel)?;
    for (name, file) in &programs {
        install(&file.path, &image.programs.join(name))?;
    }
    Ok(image)
}

/// Compiles every source with each of these sets of macros, all warnings being errors; returns how many
/// compilations it took.
#[allow(dead_code, reason = "the build script shares this file")]
pub fn check(guests: &Path, cache: &Path, sets: &[Vec<String>]) -> Result<usize, BuildError> {
    let tools = Toolchain::new(guests, cache)?;
    let mut jobs = Vec::new();
    for (folder, _) in FOLDERS {
        for source in tools.sources(folder)? {
            let mut variants: Vec<Vec<String>> = sets
                .iter()
                .map(|set| tools.macros_for(&source, set).into_iter().cloned().collect())
                .collect();
            variants.sort();
            variants.dedup();
            jobs.extend(variants.into_iter().map(|variant| (source.clone(), variant)));
        }
    }
    parallel(&jobs, |(source, macros)| tools.compile_one(source, macros)).map(|made| made.len())
}

/// Copies a file so that a reader of the target sees the old one or the new one, whole.
fn install(from: &Path, to: &Path) -> Result<(), BuildError> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let error = |e| BuildError::Io(to.to_owned(), e);
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = to.with_extension(format!("new{}-{unique}", std::process::id()));
    fs::copy(from, &new).map_err(error)?;
    fs::rename(&new, to).map_err(error)
}

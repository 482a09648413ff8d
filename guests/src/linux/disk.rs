//! File systems for tests: images made on the host, and programs (mkfs, fsck) with the libraries they need.
//!
//! Concept: an image is mostly empty, so it is packed as its pieces that are not, and unpacked by the test
//! (`guests/linux/filesystems/filesystem.h`) onto a loop device. Programs that the host lacks come from
//! Debian's archive, without being installed. Contract: file systems have a fixed identity; times of their
//! making are the host's where its mkfs knows no other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Placed;
use super::debian::Store;
use crate::toolchain::{BuildError, run};

type Result<T> = std::result::Result<T, BuildError>;

const IDENTITY: &str = "00000000-0000-4000-8000-000000000001";
const MAGIC: &[u8; 16] = b"rockfall sparse\0";
const BLOCK: usize = 4096;
/// Where the loader of a program looks for libraries.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// How a file system is made.
struct Recipe {
    name: &'static str,
    program: &'static str,
    package: &'static str,
    options: &'static [&'static str],
    bytes: u64,
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        name: "ext4",
        program: "mke2fs",
        package: "e2fsprogs",
        options: &["-q", "-F", "-t", "ext4", "-b", "1024", "-U", IDENTITY, "-E", "lazy_itable_init=0"],
        bytes: 16 << 20,
    },
    Recipe {
        name: "btrfs",
        program: "mkfs.btrfs",
        package: "btrfs-progs",
        options: &["-q", "-f", "-M", "-U", IDENTITY],
        bytes: 64 << 20,
    },
    Recipe { name: "jfs", program: "mkfs.jfs", package: "jfsutils", options: &["-q"], bytes: 32 << 20 },
    Recipe {
        name: "xfs",
        program: "mkfs.xfs",
        package: "xfsprogs",
        options: &["-q", "-f", "-m", "uuid=00000000-0000-4000-8000-000000000001"],
        bytes: 320 << 20,
    },
];

/// The packages that hold the checkers of the file systems known here, and the checkers.
const CHECKERS: [(&str, &str); 4] =
    [("e2fsck", "e2fsprogs"), ("btrfs", "btrfs-progs"), ("fsck.jfs", "jfsutils"), ("xfs_repair", "xfsprogs")];

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io(path, error)
}

/// A program and where its libraries are besides the usual places.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    libraries: Option<PathBuf>,
}

impl Program {
    /// A program by path, or by name: the host's, or from the package that is known to have it.
    pub fn find(name: &str, store: &Store, say: &dyn Fn(&str)) -> Result<Self> {
        if name.contains('/') {
            return Ok(Program { path: name.into(), libraries: None });
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/sbin", "/usr/sbin"].map(PathBuf::from));
        if let Some(path) = folders.map(|folder| folder.join(name)).find(|path| path.is_file()) {
            return Ok(Program { path, libraries: None });
        }
        let made = RECIPES.iter().map(|recipe| (recipe.program, recipe.package));
        let Some((_, package)) = CHECKERS.into_iter().chain(made).find(|(program, _)| *program == name)
        else {
            return Err(BuildError::Unknown(format!("no program {name} on this host; give its path")));
        };
        let tree = store.tools(package, say)?;
        let places = ["sbin", "usr/sbin", "bin", "usr/bin"].map(|folder| tree.join(folder).join(name));
        let Some(path) = places.into_iter().find(|path| path.is_file()) else {
            return Err(BuildError::Unknown(format!("the package {package} has no {name}")));
        };
        Ok(Program { path, libraries: Some(tree) })
    }

    fn library_path(&self) -> Option<String> {
        let tree = self.libraries.as_ref()?.display().to_string();
        Some(format!("{tree}/usr/{LIBRARIES}:{tree}/{LIBRARIES}"))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.library_path().map(|path| ("LD_LIBRARY_PATH", path)));
        command
    }

    /// The files to pack: the program in `bin`, and the libraries that its loader will ask for.
    pub fn files(&self) -> Result<Vec<Placed>> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::metadata(&self.path).map_err(io(&self.path))?;
        let mut files = vec![Placed { from: self.path.clone(), to: format!("bin/{name}") }];
        let listed = run("ldd", self.command(Path::new("ldd")).arg(&self.path));
        let text = match listed {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            // A static program.
            Err(BuildError::Refused(_)) => String::new(),
            Err(error) => return Err(error),
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(library), Some("=>"), Some("not")) => {
                    return Err(BuildError::Unknown(format!("{name} needs {library}, which was not found")));
                }
                (Some(library), Some("=>"), Some(from)) => {
                    files.push(Placed { from: from.into(), to: format!("{LIBRARIES}/{library}") });
                }
                (Some(loader), Some(_), None) if loader.starts_with('/') => {
                    files.push(Placed { from: loader.into(), to: loader.trim_start_matches('/').to_owned() });
                }
                _ => {}
            }
        }
        Ok(files)
    }
}

/// Makes a file system; its image as pieces.
pub fn make(name: &str, store: &Store, say: &dyn Fn(&str)) -> Result<Vec<u8>> {
    let Some(recipe) = RECIPES.iter().find(|recipe| recipe.name == name) else {
        let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        return Err(BuildError::Unknown(format!("no file system {name}; there are {}", names.join(", "))));
    };
    let program = Program::find(recipe.program, store, say)?;
    let scratch = super::Scratch::new()?;
    let path = scratch.0.join("disk");
    let file = fs::File::create(&path).map_err(io(&path))?;
    file.set_len(recipe.bytes).map_err(io(&path))?;
    drop(file);
    let mut command = program.command(&program.path);
    command.args(recipe.options).arg(&path).env("E2FSPROGS_FAKE_TIME", "1000000000");
    run(recipe.program, &mut command)?;
    Ok(sparse(&fs::read(&path).map_err(io(&path))?))
}

/// What the image of a test on a file system must hold: the file system, as it was made when it was first
/// asked for, and its checker.
pub fn files(name: &str, store: &Store, say: &dyn Fn(&str)) -> Result<Vec<Placed>> {
    let path = store.folder().join(name).with_extension("image");
    if !path.is_file() {
        let image = make(name, store, say)?;
        fs::create_dir_all(store.folder()).map_err(io(store.folder()))?;
        // Whole or not at all, whoever else makes it at the same time.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&part, image).map_err(io(&part))?;
        fs::rename(&part, &path).map_err(io(&path))?;
    }
    let mut files = vec![Placed { from: path, to: format!("images/{name}") }];
    let package = RECIPES.iter().find(|recipe| recipe.name == name).map(|recipe| recipe.package);
    for (checker, _) in CHECKERS.iter().filter(|(_, of)| package == Some(of)) {
        files.extend(Program::find(checker, store, say)?.files()?);
    }
    Ok(files)
}

/// The pieces of an image that are not zero.
fn sparse(image: &[u8]) -> Vec<u8> {
    let mut packed = MAGIC.to_vec();
    packed.extend((image.len() as u64).to_le_bytes());
    let mut blocks = image.chunks(BLOCK).enumerate().peekable();
    while let Some((first, block)) = blocks.next() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut piece = block.to_vec();
        while let Some((_, more)) = blocks.next_if(|(_, block)| block.iter().any(|byte| *byte != 0)) {
            piece.extend(more);
        }
        packed.extend((first as u64 * BLOCK as u64).to_le_bytes());
        packed.extend((piece.len() as u64).to_le_bytes());
        packed.extend(piece);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_left_out() {
        let mut image = vec![0; 5 * BLOCK];
        image[BLOCK] = 7;
        image[3 * BLOCK - 1] = 8;
        image[4 * BLOCK] = 9;
        let packed = sparse(&image);
        let number = |at: usize| u64::from_le_bytes(packed[at..at + 8].try_into().unwrap());
        assert_eq!((&packed[..16], number(16)), (&MAGIC[..], image.len() as u64));
        assert_eq!((number(24), number(32)), (BLOCK as u64, 2 * BLOCK as u64));
        let second = 40 + 2 * BLOCK;
        assert_eq!((number(second), number(second + 8)), (4 * BLOCK as u64, BLOCK as u64));
        assert_eq!(packed.len(), second + 16 + BLOCK);
    }

    #[test]
    fn unknown_file_systems_and_programs_are_reported() {
        let store = Store::new(Path::new("/nowhere"));
        let text = make("fat", &store, &|_| ()).map(drop).unwrap_err().to_string();
        assert_eq!(text, "no file system fat; there are ext4, btrfs, jfs, xfs");
        let text = Program::find("no-such-program", &store, &|_| ()).map(drop).unwrap_err().to_string();
        assert!(text.contains("give its path"), "{text}");
    }
}

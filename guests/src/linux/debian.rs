//! Debian's kernels, brought by name from the package archive that the host's apt knows; nothing is
//! installed, and no rights are needed.
//!
//! Concept: a store is a folder with one folder for each release (`6.1.0-54-amd64`): the kernel, the package
//! it came from, modules as they were asked for, and the headers to build modules against. Contract: what is
//! there is not brought again; what is brought appears whole or not at all. What the archive no longer has,
//! and programs that are missing, are said in a sentence. Limits: amd64; signed images only; hosts with apt
//! and dpkg.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::toolchain::{BuildError, run};

type Result<T> = std::result::Result<T, BuildError>;

const ARCHITECTURE: &str = "-amd64";
const IMAGE: &str = "linux-image-";

fn failed<T>(text: String) -> Result<T> {
    Err(BuildError::Unknown(text))
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io(path, error)
}

/// Compares releases number by number: 6.1.0-9 before 6.1.0-54.
#[must_use]
pub fn by_version(left: &str, right: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        let parts = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        parts.map(|part| part.parse().unwrap_or(u64::MAX)).collect()
    };
    numbers(left).cmp(&numbers(right)).then_with(|| left.cmp(right))
}

/// Whether a version as people write it (`6.1.0-54`, `6.12.115`) means a release.
fn means(version: &str, release: &str) -> bool {
    let plain = release.strip_suffix(ARCHITECTURE).unwrap_or(release);
    version == release
        || version == plain
        || plain.strip_prefix(version).is_some_and(|rest| rest.starts_with('+'))
}

/// The releases that the archive has today, oldest first.
pub fn available() -> Result<Vec<String>> {
    let pattern = format!("^{IMAGE}[0-9].*{ARCHITECTURE}$");
    let output = run("apt-cache", Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split(' ').next()?.strip_prefix(IMAGE));
    let plain = |name: &&str| {
        let middle = name.strip_suffix(ARCHITECTURE).unwrap_or(name);
        // Neither other flavours (rt, cloud) nor packages that only stand for another (6.12-amd64).
        !middle.contains("rt") && !middle.contains("cloud") && middle.matches('.').count() >= 2
    };
    let mut releases: Vec<String> = names.filter(plain).map(str::to_owned).collect();
    releases.sort_by(|a, b| by_version(a, b));
    releases.dedup();
    if releases.is_empty() {
        return failed(
            "apt knows no Debian kernel; is this a Debian with its package lists (apt-get update)?"
                .to_owned(),
        );
    }
    Ok(releases)
}

/// The release that `linux-image-amd64` stands for, or else the newest.
fn newest(available: &[String]) -> Option<String> {
    let output = run("apt-cache", Command::new("apt-cache").args(["depends", "linux-image-amd64"])).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let named = text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")?.strip_prefix(IMAGE));
    let named = named.filter(|named| available.iter().any(|release| release == named));
    named.map(str::to_owned).or_else(|| available.last().cloned())
}

/// A folder of kernels.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// One kernel of a store.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The release, as `uname -r` prints it.
    pub release: String,
    folder: PathBuf,
}

impl Store {
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Store { folder: folder.to_owned() }
    }

    /// The folder in which kernels are kept unless the user says otherwise.
    #[must_use]
    pub fn usual() -> Option<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
        Some(Store { folder: cache.join("rockfall/linux") })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernels that are there, oldest first.
    #[must_use]
    pub fn kernels(&self) -> Vec<Kernel> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(|entry| entry.ok());
        let kernels = entries.map(|entry| Kernel {
            release: entry.file_name().to_string_lossy().into_owned(),
            folder: entry.path(),
        });
        let mut kernels: Vec<Kernel> = kernels.filter(|kernel| kernel.image().exists()).collect();
        kernels.sort_by(|a, b| by_version(&a.release, &b.release));
        kernels
    }

    /// The kernel of a version, without asking the archive.
    #[must_use]
    pub fn find(&self, version: &str) -> Option<Kernel> {
        self.kernels().into_iter().rev().find(|kernel| means(version, &kernel.release))
    }

    /// The kernel of a version, or the one that Debian has as its kernel today.
    pub fn fetch(&self, version: Option<&str>, say: &dyn Fn(&str)) -> Result<Kernel> {
        if let Some(kernel) = version.and_then(|version| self.find(version)) {
            return Ok(kernel);
        }
        let available = available()?;
        let release = match version {
            None => newest(&available),
            Some(version) => available.iter().rev().find(|release| means(version, release)).cloned(),
        };
        let Some(release) = release else {
            let wanted = version.unwrap_or("linux-image-amd64");
            return failed(format!(
                "the archive has no kernel {wanted}; it has {}",
                available
                    .iter()
                    .map(|name| name.trim_end_matches(ARCHITECTURE))
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
        };
        let kernel = Kernel { folder: self.folder.join(&release), release };
        if !kernel.image().exists() {
            let package = kernel.download(&format!("{IMAGE}{}", kernel.release), say)?;
            let kept = kernel.package();
            fs::rename(&package, &kept).map_err(io(&kept))?;
            kernel.unpack_image()?;
        }
        Ok(kernel)
    }
}

impl Store {
    /// Unpacks a package and the libraries it depends on; returns the folder.
    pub fn tools(&self, package: &str, say: &dyn Fn(&str)) -> Result<PathBuf> {
        let tree = self.folder.join("tools").join(package);
        if tree.exists() {
            return Ok(tree);
        }
        let new = self.folder.join("tools").join(format!("{package}-{}", std::process::id()));
        let place = Kernel { release: String::new(), folder: new.clone() };
        let libraries = depends(package)?.into_iter().filter(|name| {
            name.starts_with("lib") && !name.starts_with("libc6") && !name.starts_with("libgcc")
        });
        for name in std::iter::once(package.to_owned()).chain(libraries) {
            let path = place.download(&name, say)?;
            run("dpkg", Command::new("dpkg").arg("-x").arg(&path).arg(&new))?;
            fs::remove_file(&path).map_err(io(&path))?;
        }
        fs::rename(&new, &tree).map_err(io(&tree))?;
        Ok(tree)
    }
}

/// Files of a package: the lines of `tar -t`.
fn files_of(package: &Path) -> Result<Vec<String>> {
    let tar = dpkg(package, |tar| tar.arg("-t"))?;
    Ok(String::from_utf8_lossy(&tar).lines().map(str::to_owned).collect())
}

/// Pipes a package's files through tar.
fn dpkg(package: &Path, options: impl FnOnce(&mut Command) -> &mut Command) -> Result<Vec<u8>> {
    let mut dpkg = Command::new("dpkg")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| BuildError::NoTool("dpkg"))?;
    let input = dpkg.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let output = run("tar", options(&mut Command::new("tar")).stdin(input));
    let status = dpkg.wait().map_err(io(package))?;
    if !status.success() {
        return failed(format!("{} is damaged; remove it and fetch again", package.display()));
    }
    Ok(output?.stdout)
}

impl Kernel {
    /// The kernel itself.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn package(&self) -> PathBuf {
        self.folder.join("image.deb")
    }

    /// Downloads a package; returns its path.
    fn download(&self, package: &str, say: &dyn Fn(&str)) -> Result<PathBuf> {
        let folder = self.folder.join(format!("download-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        say(&format!("fetching {package}"));
        let result = run("apt-get", Command::new("apt-get").current_dir(&folder).args(["download", package]));
        let found = fs::read_dir(&folder).map_err(io(&folder))?.filter_map(|entry| Some(entry.ok()?.path()));
        let found = found.filter(|path| path.extension() == Some(OsStr::new("deb"))).max();
        let kept = self.folder.join(format!("{package}.deb"));
        let moved = found.map(|found| fs::rename(found, &kept));
        // An empty folder that is left behind does no harm.
        let _ = fs::remove_dir_all(&folder);
        match (result, moved) {
            (Ok(_), Some(Ok(()))) => Ok(kept),
            (Err(BuildError::Refused(text)), _) => {
                let last = text.lines().last().unwrap_or_default().to_owned();
                failed(format!("{package} cannot be downloaded: {last}"))
            }
            (Err(error), _) => Err(error),
            _ => failed(format!("{package} was not downloaded; has the archive dropped it?")),
        }
    }

    fn unpack_image(&self) -> Result<()> {
        let inside = format!("./boot/vmlinuz-{}", self.release);
        let bytes = dpkg(&self.package(), |tar| tar.args(["-x", "-O", &inside]))?;
        let path = self.image();
        let new = self.folder.join(format!("vmlinuz-{}", std::process::id()));
        fs::write(&new, bytes).map_err(io(&new))?;
        fs::rename(&new, &path).map_err(io(&path))
    }

    /// Modules by name, with all that they depend on, in the order in which they must be loaded. Those that
    /// are built into the kernel are left out.
    pub fn modules(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        let mut store = ModuleFiles::open(self)?;
        let mut ordered = Vec::new();
        for name in names {
            store.add(name, &mut Vec::new(), &mut ordered)?;
        }
        Ok(ordered)
    }

    /// The headers for building modules, in one tree, brought if need be.
    pub fn headers(&self, say: &dyn Fn(&str)) -> Result<PathBuf> {
        let folder = self.folder.canonicalize().map_err(io(&self.folder))?;
        let tree = folder.join("headers");
        let build = tree.join(format!("usr/src/linux-headers-{}", self.release));
        if build.join("Makefile").exists() && build.join("scripts/Makefile.build").exists() {
            return Ok(build);
        }
        let new = self.folder.join(format!("headers-{}", std::process::id()));
        let own = format!("linux-headers-{}", self.release);
        let mut wanted = vec![own.clone()];
        wanted.extend(
            depends(&own)?
                .into_iter()
                .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-")),
        );
        for package in wanted {
            let path = self.download(&package, say)?;
            run("dpkg", Command::new("dpkg").arg("-x").arg(&path).arg(&new))?;
            fs::remove_file(&path).map_err(io(&path))?;
        }
        let makefile = new.join(format!("usr/src/linux-headers-{}/Makefile", self.release));
        let text = fs::read_to_string(&makefile).map_err(io(&makefile))?;
        // The package believes that it lies in the root.
        let text = text.replace("/usr/src/", &format!("{}/usr/src/", tree.display()));
        fs::write(&makefile, text).map_err(io(&makefile))?;
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(io(&tree))?;
        }
        fs::rename(&new, &tree).map_err(io(&tree))?;
        Ok(build)
    }

    /// The headers, if they are there.
    #[must_use]
    pub fn headers_found(&self) -> Option<PathBuf> {
        let build = self.folder.join(format!("headers/usr/src/linux-headers-{}", self.release));
        build.join("scripts/Makefile.build").exists().then_some(build)
    }
}

/// What a package depends on.
fn depends(package: &str) -> Result<Vec<String>> {
    let output = run("apt-cache", Command::new("apt-cache").args(["depends", package]));
    let Ok(output) = output else {
        return failed(format!("the archive has no {package}; modules cannot be built for this kernel"));
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| Some(line.trim().strip_prefix("Depends: ")?.to_owned())).collect())
}

/// The modules of a package, unpacked as they are asked for.
struct ModuleFiles<'a> {
    kernel: &'a Kernel,
    /// Paths in the package.
    files: Vec<String>,
    built_in: String,
}

/// The name of a module: `snd-pcm` and `snd_pcm` are the same.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

impl<'a> ModuleFiles<'a> {
    fn open(kernel: &'a Kernel) -> Result<Self> {
        let list = kernel.folder.join("files.txt");
        if !list.exists() {
            let text = files_of(&kernel.package())?.join("\n");
            fs::write(&list, text).map_err(io(&list))?;
        }
        let files = fs::read_to_string(&list).map_err(io(&list))?;
        let files: Vec<String> = files.lines().map(str::to_owned).collect();
        let mut store = ModuleFiles { kernel, files, built_in: String::new() };
        let built_in = store.files.iter().find(|file| file.ends_with("/modules.builtin")).cloned();
        if let Some(file) = built_in {
            store.built_in =
                String::from_utf8_lossy(&fs::read(store.unpack(&file)?).unwrap_or_default()).into();
        }
        Ok(store)
    }

    /// A file of the package in the kernel's folder of modules; modules that are packed with xz are unpacked.
    fn unpack(&self, file: &str) -> Result<PathBuf> {
        let folder = self.kernel.folder.join("modules");
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let path = folder.join(name.trim_end_matches(".xz"));
        if path.exists() {
            return Ok(path);
        }
        let bytes = dpkg(&self.kernel.package(), |tar| tar.args(["-x", "-O", file]))?;
        let bytes = super::unpacked(&folder.join(name), bytes)?;
        let new = folder.join(format!("{name}-{}", std::process::id()));
        fs::write(&new, bytes).map_err(io(&new))?;
        fs::rename(&new, &path).map_err(io(&path))?;
        Ok(path)
    }

    fn has(&self, name: &str) -> bool {
        let wanted = module_name(name);
        self.files.iter().any(|file| file.contains(".ko") && module_name(file) == wanted)
    }

    /// Adds a module behind all that it depends on.
    fn add(&mut self, name: &str, above: &mut Vec<String>, ordered: &mut Vec<PathBuf>) -> Result<()> {
        let wanted = module_name(name);
        let is_module = |file: &&String| file.contains(".ko") && module_name(file) == wanted;
        let Some(file) = self.files.iter().find(is_module).cloned() else {
            if self.built_in.lines().any(|line| module_name(line) == wanted) {
                return Ok(());
            }
            return failed(format!("kernel {} has no module {name}", self.kernel.release));
        };
        let path = self.unpack(&file)?;
        if ordered.contains(&path) || above.contains(&wanted) {
            return Ok(());
        }
        above.push(wanted);
        let bytes = fs::read(&path).map_err(io(&path))?;
        for needed in dependencies(&bytes) {
            self.add(&needed, above, ordered)?;
        }
        // What should be there before, by the name of an algorithm: its plain implementation will do, if
        // there is one.
        for wished in wishes(&bytes) {
            let algorithm = wished.strip_prefix("crypto-").unwrap_or(&wished).to_owned();
            let plain = format!("{algorithm}_generic");
            let named = [wished, algorithm, plain].into_iter().find(|name| self.has(name));
            if let Some(name) = named {
                self.add(&name, above, ordered)?;
            }
        }
        above.pop();
        ordered.push(path);
        Ok(())
    }
}

/// The fields of a module's `.modinfo` with this key: texts that end with NUL, one behind the other.
fn fields(module: &[u8], key: &[u8]) -> Vec<String> {
    let begins = |at: &usize| module[*at..].starts_with(key) && (*at == 0 || module[at - 1] == 0);
    let text = |at: usize| {
        let rest = &module[at + key.len()..];
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    (0..module.len()).filter(begins).map(text).collect()
}

/// What a module says that it needs.
fn dependencies(module: &[u8]) -> Vec<String> {
    let lists = fields(module, b"depends=");
    let names = lists.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// What a module would like to find loaded.
fn wishes(module: &[u8]) -> Vec<String> {
    let lists = fields(module, b"softdep=pre:");
    let before = |list: &String| list.split("post:").next().unwrap_or_default().to_owned();
    let names: Vec<String> = lists.iter().map(before).collect();
    names.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let mut releases = ["6.12.9+deb12-amd64", "6.1.0-54-amd64", "6.1.0-9-amd64", "6.12.115+deb12-amd64"];
        releases.sort_by(|a, b| by_version(a, b));
        assert_eq!(
            releases,
            ["6.1.0-9-amd64", "6.1.0-54-amd64", "6.12.9+deb12-amd64", "6.12.115+deb12-amd64"]
        );
        for version in ["6.12.115", "6.12.115+deb12", "6.12.115+deb12-amd64"] {
            assert!(means(version, "6.12.115+deb12-amd64"), "{version}");
        }
        assert!(!means("6.1.0-5", "6.1.0-54-amd64") && !means("6.12.11", "6.12.115+deb12-amd64"));
    }

    #[test]
    fn what_a_module_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=crc16,mbcache,jbd2\0name=ext4\0";
        assert_eq!(dependencies(module), ["crc16", "mbcache", "jbd2"]);
        assert_eq!(dependencies(b"depends=\0name=loop\0"), Vec::<String>::new());
        assert_eq!(wishes(b"softdep=pre: crc32c xxhash64 post: zstd\0"), ["crc32c", "xxhash64"]);
        assert_eq!(module_name("./lib/modules/6/kernel/net/nf-log.ko.xz"), "nf_log");
    }

    #[test]
    fn a_store_without_kernels_has_none() {
        let store = Store::new(Path::new("/nowhere"));
        assert!(store.kernels().is_empty() && store.find("6.1.0-54").is_none());
    }
}

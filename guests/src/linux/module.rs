//! Modules of ours, built against the headers of a kernel as any driver outside of its tree is.
//!
//! Contract: a set of sources and macros is built once for each kernel and kept by what it was made from.
//! What is packed has no debugging information; the file with it lies beside, for the lines of reports. That
//! make, the kernel's compiler or the headers are missing is said in a sentence.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{BuildError, Hash, run};

type Result<T> = std::result::Result<T, BuildError>;

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io(path, error)
}

/// What to build: C files, each a module of its own name, that may include the headers beside them.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    pub sources: Vec<PathBuf>,
    /// Macros that are defined for all of them.
    pub macros: Vec<String>,
}

impl Modules {
    /// Builds in a folder of `cache`; the modules, in the order of the sources.
    pub fn build(&self, headers: &Path, cache: &Path) -> Result<Vec<PathBuf>> {
        if !headers.join("Makefile").exists() {
            return Err(BuildError::Unknown(format!(
                "no kernel headers at {}; `rockfall linux fetch --headers` brings them",
                headers.display()
            )));
        }
        let mut names = Vec::new();
        let mut files = Vec::new();
        let mut hash = Hash::new().add(headers.to_string_lossy().as_bytes());
        for source in &self.sources {
            let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if names.contains(&name) {
                return Err(BuildError::Unknown(format!("two modules are called {name}; rename one")));
            }
            files.push((format!("{name}.c"), fs::read(source).map_err(io(source))?));
            names.push(name);
            files.extend(beside(source)?);
        }
        files.sort();
        files.dedup();
        for (name, bytes) in &files {
            hash = hash.add(name.as_bytes()).add(bytes);
        }
        for name in &self.macros {
            hash = hash.add(name.as_bytes());
        }
        let folder = cache.join(hash.to_string());
        if !folder.exists() {
            self.make(headers, &folder, &names, &files)?;
        }
        Ok(names.iter().map(|name| folder.join(format!("{name}.ko"))).collect())
    }

    fn make(
        &self,
        headers: &Path,
        folder: &Path,
        names: &[String],
        files: &[(String, Vec<u8>)],
    ) -> Result<()> {
        let new = folder.with_extension(std::process::id().to_string());
        fs::create_dir_all(&new).map_err(io(&new))?;
        for (name, bytes) in files {
            let path = new.join(name);
            fs::write(&path, bytes).map_err(io(&path))?;
        }
        let objects: Vec<String> = names.iter().map(|name| format!("{name}.o")).collect();
        let flags: Vec<String> = self.macros.iter().map(|name| format!("-D{name}")).collect();
        let kbuild = format!("obj-m := {}\nccflags-y := {}\n", objects.join(" "), flags.join(" "));
        let path = new.join("Kbuild");
        fs::write(&path, kbuild).map_err(io(&path))?;
        let work = new.canonicalize().map_err(io(&new))?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("-s").arg(format!("-j{jobs}")).arg("-C").arg(headers);
        make.arg(format!("M={}", work.display())).arg("modules");
        let built = run("make", &mut make).map_err(|error| match error {
            BuildError::Refused(text) if text.contains("gcc-") && text.contains("not found") => {
                BuildError::Unknown(format!(
                    "the kernel's headers want the compiler that the kernel was built with:\n{}",
                    text.trim()
                ))
            }
            other => other,
        });
        let done = built.and_then(|_| {
            for name in names {
                let (whole, stripped) =
                    (new.join(format!("{name}.ko")), new.join(format!("{name}.stripped")));
                run(
                    "strip",
                    Command::new("strip").arg("--strip-debug").arg("-o").arg(&stripped).arg(&whole),
                )?;
                let debug = new.join(format!("{name}.debug"));
                fs::rename(&whole, &debug).map_err(io(&debug))?;
                fs::rename(&stripped, &whole).map_err(io(&whole))?;
            }
            fs::rename(&new, folder).map_err(io(folder))
        });
        if done.is_err() {
            // What failed is of no use; what cannot be removed does no harm.
            let _ = fs::remove_dir_all(&new);
        }
        done
    }
}

/// The flags with which a module was compiled, for other readers of its source: include paths and macros
/// count, paths do not depend on the folder. The kernel's build keeps the command beside the module.
pub fn flags(module: &Path, headers: &Path) -> Result<Vec<String>> {
    let name = module.file_stem().unwrap_or_default().to_string_lossy();
    let path = module.with_file_name(format!(".{name}.o.cmd"));
    let text = fs::read_to_string(&path).map_err(io(&path))?;
    Ok(flags_of(&text, headers))
}

/// The flags of `cmd_FILE := gcc FLAGS -c -o FILE SOURCE ; ...`.
fn flags_of(text: &str, headers: &Path) -> Vec<String> {
    let command = text.split_once(":=").map_or("", |(_, command)| command);
    let words = command.split(" ; ").next().unwrap_or(command).split_whitespace().skip(1);
    let mut flags = Vec::new();
    for word in words.take_while(|word| *word != "-c") {
        let word = word.replace('\'', "");
        if word.starts_with("-Wp,") {
            continue;
        }
        flags.push(match word.strip_prefix("-I.").filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => format!("-I{}{rest}", headers.display()),
            None => word,
        });
    }
    flags
}

/// The headers in the folder of a source, by name.
fn beside(source: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = source.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let path = entry.map_err(io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((name, fs::read(&path).map_err(io(&path))?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_do_not_depend_on_the_folder() {
        let text = "cmd_/x/a.o :=  gcc-12 -Wp,-MMD,/x/.a.o.d -nostdinc -I/h/include -I./arch -include /h/k.h -DA='\"a\"' -c -o \
                    /x/a.o /x/a.c   ; ./tools/objtool /x/a.o\n\nsource_/x/a.o := /x/a.c\n";
        let flags = flags_of(text, Path::new("/headers"));
        assert_eq!(
            flags,
            ["-nostdinc", "-I/h/include", "-I/headers/arch", "-include", "/h/k.h", "-DA=\"a\""]
        );
        assert_eq!(flags_of("", Path::new("/headers")), Vec::<String>::new());
    }
}

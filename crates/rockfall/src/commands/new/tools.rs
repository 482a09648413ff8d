//! The tools of a course's makefile as compilers of today want them.
//!
//! Concept: a folder at the head of PATH with scripts of the tools' usual names, each of which runs the tool
//! of that name from the rest of PATH. The makefile keeps its own variables, and no file of the project is
//! changed.

use crate::files::write_whole;
use campaign::Failure;
use guests::courses::COMPILER_FLAGS;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a failed build that are reported.
const LINES_SHOWN: usize = 12;

/// The compiler's script. What a makefile builds to run while it builds is for the host; stabs are no longer
/// known.
fn compiler_script(compiler: &str) -> String {
    format!(
        "#!/bin/sh\n\
         PATH=${{PATH#*:}}\n\
         host=yes\n\
         for argument do\n    \
             case $argument in -c | -E | -S | -M* | -r | -nostdlib | -print-* | *.o | -) host=no ;; esac\n\
         done\n\
         for argument do\n    \
             shift\n    \
             case $host$argument in\n        \
                 *-gstabs* | *-Werror | yes-m32) ;;\n        \
                 *) set -- \"$@\" \"$argument\" ;;\n    \
             esac\n\
         done\n\
         if [ $host = yes ]; then exec {compiler} \"$@\" -w; fi\n\
         exec {compiler} \"$@\" {COMPILER_FLAGS}\n"
    )
}

/// The linker's script. A stack that nobody says is not executable is a warning of today's linker, and warnings may
/// be fatal. Linker scripts of older courses put a byte into sections of stabs, which compilers no longer make: behind
/// sections that are not part of the program, the linker forgets that data are loaded to lower addresses than they have,
/// and puts them where there is no memory. It is given such a script without these bytes.
const LINKER_SCRIPT: &str = r#"#!/bin/sh
PATH=${PATH#*:}
before=
for argument do
    shift
    if [ "$before" = -T ] && grep -q '^[[:space:]]*\.stab' "$argument" 2> /dev/null; then
        without="${0%/*}/${argument##*/}"
        sed -e '/^[[:space:]]*\.stab/{' -e ':a' -e '/}/!{' -e N -e ba -e '}' -e 's/BYTE *(0)//g' -e '}' \
            "$argument" > "$without" && argument=$without
    fi
    before=$argument
    set -- "$@" "$argument"
done
exec ld "$@" --no-fatal-warnings -z noexecstack
"#;

/// A script that runs a tool under another name.
fn script(tool: &str) -> String {
    format!("#!/bin/sh\nPATH=${{PATH#*:}}\nexec {tool} \"$@\"\n")
}

pub struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Writes the scripts into a folder of that name inside of `output`.
    pub fn write(output: &Path, compiler: &str) -> Result<Self, Failure> {
        let folder = output.join("tools");
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::Unwritable { path: folder.clone(), error })?;
        let tools = Self { folder };
        for name in ["gcc", "cc", "410-gcc"] {
            tools.add(name, &compiler_script(compiler))?;
        }
        for name in ["ld", "410-ld"] {
            tools.add(name, LINKER_SCRIPT)?;
        }
        for tool in ["as", "ar", "ranlib", "objcopy", "objdump", "strip", "nm"] {
            tools.add(&format!("410-{tool}"), &script(tool))?;
        }
        Ok(tools)
    }

    fn add(&self, name: &str, text: &str) -> Result<(), Failure> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join(name);
        write_whole(&path, text.as_bytes())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .map_err(|error| Failure::Unwritable { path, error })
    }

    /// Runs `make` with these tools in a folder; whether it succeeded, and all that it said.
    pub fn try_make(&self, folder: &Path, arguments: &[String]) -> Result<(bool, String), Failure> {
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(self.folder.clone()).chain(std::env::split_paths(&rest));
        let path = std::env::join_paths(paths)
            .map_err(|_| Failure::BadInput(format!("':' is in the name of {}", self.folder.display())))?;
        let mut command = Command::new("make");
        // Makefiles may ask the shell's variable where they are.
        command.current_dir(folder).env("PWD", folder).args(arguments).env("PATH", path);
        let output = command.output().map_err(|error| {
            Failure::BadInput(format!("'make' cannot be started: {error}; install it, and the compiler"))
        })?;
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), text))
    }

    /// Runs the project's makefile; if that fails, the error has the last lines of what it printed.
    pub fn make(&self, folder: &Path, arguments: &[String]) -> Result<(), Failure> {
        let (fine, text) = self.try_make(folder, arguments)?;
        if fine {
            return Ok(());
        }
        let lines_shown = why_it_failed(&text);
        Err(Failure::BadInput(format!(
            "'make -C {} {}' fails:\n  {}\nMend that, or build the kernel as your course says and use 'rockfall init' and \
             'rockfall doctor' on it.",
            folder.display(),
            arguments.join(" "),
            lines_shown.join("\n  ")
        )))
    }
}

/// The lines of a failed build that say what is wrong: those with an error, else the last ones.
fn why_it_failed(output: &str) -> Vec<&str> {
    let lines = || output.lines().filter(|line| !line.trim().is_empty());
    let mut lines_shown: Vec<&str> =
        lines().filter(|line| line.to_ascii_lowercase().contains("error")).collect();
    // Compilers are told what counts as an error in every line, and make says only that there was one.
    lines_shown.retain(|line| {
        !line.contains("-Werror") && !line.contains("-Wno-error") && !line.starts_with("make")
    });
    if lines_shown.is_empty() {
        lines_shown = lines().collect();
    }
    lines_shown.drain(..lines_shown.len().saturating_sub(LINES_SHOWN));
    if output.contains("bits/libc-header-start.h") {
        lines_shown.push("(a program for this computer is built for 32 bits, and its headers are missing: install gcc-multilib)");
    }
    lines_shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_tells_what_is_wrong() {
        let output = "cc -Werror -c a.c\na.c:3:1: error: no such thing\na.c:9:1: warning: odd\nmake: *** [a.o] Error 1\n";
        assert_eq!(why_it_failed(output), ["a.c:3:1: error: no such thing"]);
        assert_eq!(why_it_failed("one\n\ntwo\n"), ["one", "two"]);
        let headers = "stdio.h:27:10: fatal error: bits/libc-header-start.h: No such file or directory\n";
        assert!(why_it_failed(headers)[1].contains("install gcc-multilib"));
    }
}

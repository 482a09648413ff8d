//! Builds the benchmark guests: Multiboot kernels in C, compiled with the host's `gcc -m32` and nothing else.
//!
//! A guest is rebuilt when its sources or flags differ from those it was built from. All code is compiled the same
//! way for every machine that runs it: the bytes measured are identical.

use crate::wide;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHARED: &[(&str, &str)] = &[
    ("start.S", include_str!("guests/start.S")),
    ("guest.ld", include_str!("guests/guest.ld")),
    ("guest.h", include_str!("guests/guest.h")),
    ("guest.c", include_str!("guests/guest.c")),
];

/// As kernels are compiled: optimised, freestanding, without the vector and floating-point units.
const FLAGS: &[&str] = &[
    "-m32",
    "-march=i686",
    "-O2",
    "-std=gnu11",
    "-ffreestanding",
    "-mgeneral-regs-only",
    "-fno-pic",
    "-fno-pie",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-tree-loop-distribute-patterns",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wno-builtin-declaration-mismatch",
    "-Werror",
];

/// What a guest exercises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A few loops, run long.
    Hot,
    /// Thousands of functions, each run seldom.
    Wide,
    /// Writes to a number of pages between two points.
    Dirty,
}

impl Guest {
    pub const ALL: [Self; 3] = [Self::Hot, Self::Wide, Self::Dirty];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Wide => "wide",
            Self::Dirty => "dirty",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guest| guest.name() == name)
    }

    fn sources(self) -> Vec<(String, String)> {
        let own: &[(&str, &str)] = match self {
            Self::Hot => &[("hot.c", include_str!("guests/hot.c"))],
            Self::Wide => {
                &[("wide.h", include_str!("guests/wide.h")), ("wide.c", include_str!("guests/wide.c"))]
            }
            Self::Dirty => &[("dirty.c", include_str!("guests/dirty.c"))],
        };
        let mut sources: Vec<(String, String)> =
            SHARED.iter().chain(own).map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        if self == Self::Wide {
            sources.extend(wide::sources());
        }
        sources
    }

    /// The kernel's path, built if needed.
    pub fn build(self) -> Result<PathBuf, String> {
        let folder = folder()?.join(self.name());
        let kernel = folder.join("kernel.elf");
        let sources = self.sources();
        let recipe = sources.iter().fold(FLAGS.join(" "), |recipe, (name, text)| recipe + name + text);
        let recipe_path = folder.join("recipe");
        if kernel.exists() && fs::read_to_string(&recipe_path).is_ok_and(|built| built == recipe) {
            return Ok(kernel);
        }
        let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
        fs::create_dir_all(&folder).map_err(|e| failed(&folder.display().to_string(), e))?;
        let mut inputs = Vec::new();
        for (name, text) in &sources {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|e| failed(&path.display().to_string(), e))?;
            if name.ends_with(".c") || name.ends_with(".S") {
                inputs.push(path);
            }
        }
        compile(&inputs, &folder, &kernel)?;
        fs::write(&recipe_path, recipe).map_err(|e| failed(&recipe_path.display().to_string(), e))?;
        Ok(kernel)
    }
}

pub fn folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let target = program.parent().and_then(Path::parent).ok_or("this program has no folder")?;
    Ok(target.join("bench-guests"))
}

fn compile(inputs: &[PathBuf], folder: &Path, kernel: &Path) -> Result<(), String> {
    let mut gcc = Command::new("gcc");
    gcc.args(FLAGS).args(["-static", "-nostdlib", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-T"]);
    gcc.arg(folder.join("guest.ld")).arg("-o").arg(kernel).args(inputs);
    let output = gcc.output().map_err(|e| format!("gcc: {e}; install gcc to build the guests"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("gcc could not build {}:\n{}", kernel.display(), String::from_utf8_lossy(&output.stderr)))
}

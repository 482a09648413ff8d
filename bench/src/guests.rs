//! Builds the benchmark guests: Multiboot kernels in C, compiled with the host's `gcc` and nothing else, the
//! same sources to 32-bit and to 64-bit code.
//!
//! A guest is rebuilt when its sources or flags differ from those it was built from. All code is compiled the
//! same way for every machine that runs it: the bytes measured are identical.

use crate::wide;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHARED: &[(&str, &str)] = &[
    ("guest.ld", include_str!("guests/guest.ld")),
    ("guest.h", include_str!("guests/guest.h")),
    ("guest.c", include_str!("guests/guest.c")),
];

const START: (&str, &str) = ("start.S", include_str!("guests/start.S"));
const LONG_START: (&str, &str) = ("start64.S", include_str!("guests/start64.S"));

const NARROW_FLAGS: &[&str] = &["-m32", "-march=i686"];
const LONG_FLAGS: &[&str] = &["-m64", "-march=x86-64", "-mno-red-zone"];

/// As kernels are compiled: optimised, freestanding, without the vector and floating-point units.
const FLAGS: &[&str] = &[
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
    /// The two in 64-bit code.
    HotLong,
    WideLong,
    /// Writes to a number of pages between two points.
    Dirty,
}

impl Guest {
    pub const ALL: [Self; 5] = [Self::Hot, Self::Wide, Self::HotLong, Self::WideLong, Self::Dirty];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Wide => "wide",
            Self::HotLong => "hot64",
            Self::WideLong => "wide64",
            Self::Dirty => "dirty",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guest| guest.name() == name)
    }

    /// A few loops, in code of any width?
    pub fn is_hot(self) -> bool {
        matches!(self, Self::Hot | Self::HotLong)
    }

    /// In 64-bit code?
    pub fn is_long(self) -> bool {
        matches!(self, Self::HotLong | Self::WideLong)
    }

    fn flags(self) -> impl Iterator<Item = &'static &'static str> {
        if self.is_long() { LONG_FLAGS } else { NARROW_FLAGS }.iter().chain(FLAGS)
    }

    fn sources(self) -> Vec<(String, String)> {
        let own: &[(&str, &str)] = match self {
            Self::Hot | Self::HotLong => &[("hot.c", include_str!("guests/hot.c"))],
            Self::Wide | Self::WideLong => {
                &[("wide.h", include_str!("guests/wide.h")), ("wide.c", include_str!("guests/wide.c"))]
            }
            Self::Dirty => &[("dirty.c", include_str!("guests/dirty.c"))],
        };
        let start = if self.is_long() { LONG_START } else { START };
        let mut sources: Vec<(String, String)> = std::iter::once(&start)
            .chain(SHARED)
            .chain(own)
            .map(|&(name, text)| (name.to_owned(), text.to_owned()))
            .collect();
        if matches!(self, Self::Wide | Self::WideLong) {
            sources.extend(wide::sources());
        }
        sources
    }

    /// The kernel's path, built if needed.
    pub fn build(self) -> Result<PathBuf, String> {
        let folder = folder()?.join(self.name());
        let kernel = folder.join("kernel.elf");
        let sources = self.sources();
        let flags = self.flags().fold(String::new(), |all, flag| all + flag + " ");
        let recipe = sources.iter().fold(flags, |recipe, (name, text)| recipe + name + text);
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
        self.compile(&inputs, &folder, &kernel)?;
        fs::write(&recipe_path, recipe).map_err(|e| failed(&recipe_path.display().to_string(), e))?;
        Ok(kernel)
    }
}

pub fn folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| format!("where is this program? {e}"))?;
    let target = program.parent().and_then(Path::parent).ok_or("this program has no folder")?;
    Ok(target.join("bench-guests"))
}

impl Guest {
    fn compile(self, inputs: &[PathBuf], folder: &Path, kernel: &Path) -> Result<(), String> {
        let linked = if self.is_long() { folder.join("kernel64.elf") } else { kernel.to_owned() };
        let mut gcc = Command::new("gcc");
        gcc.args(self.flags()).args([
            "-static",
            "-nostdlib",
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
            "-T",
        ]);
        gcc.arg(folder.join("guest.ld")).arg("-o").arg(&linked).args(inputs);
        run(gcc, "gcc")?;
        if self.is_long() {
            // Multiboot knows 32-bit files only; the code inside is what it is.
            let mut objcopy = Command::new("objcopy");
            objcopy.args(["-O", "elf32-i386"]).arg(&linked).arg(kernel);
            run(objcopy, "objcopy")?;
        }
        Ok(())
    }
}

fn run(mut command: Command, name: &str) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{name}: {e}; install {name} to build the guests"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name} could not build a guest:\n{}", String::from_utf8_lossy(&output.stderr)))
}

//! What can be built to run in the machine: the bundled Pebbles kernel, and images with tests for Linux
//! kernels (`linux`).
//!
//! Concept: one set of C sources, a handful of design variants and a catalogue of seeded faults, each a
//! macro; `Build` picks some and makes a bootable image. Contract: the same sources, choice and compiler give
//! the same bits in any folder.

mod catalogue;
pub mod courses;
pub mod cpio;
pub mod demo;
mod image;
pub mod linux;
pub mod qemu;
pub mod small;
pub mod smp;
pub mod tiny;
mod toolchain;

use std::path::{Path, PathBuf};

pub use catalogue::{Fault, Place, faults};
pub use image::{Image, Program};
pub use toolchain::BuildError;

/// The designs a kernel may choose between; the default of each is `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Design {
    /// Whether the running thread stays on the run queue.
    pub current_on_queue: bool,
    /// Whether a thread that finds a mutex taken yields until it is free, instead of blocking.
    pub yield_mutex: bool,
    /// Whether the kernel, with nothing to run, waits on the stack of the last thread, instead of in an idle
    /// thread.
    pub idle_loop: bool,
    /// Whether a new thread runs at once, instead of waiting for its turn.
    pub child_first: bool,
    /// Whether preemption is disabled by a flag that the timer handler looks at, instead of by disabling
    /// interrupts.
    pub preempt_flag: bool,
    /// The idle thread runs a program in user space, instead of halting in the kernel. Not together with
    /// `idle_loop`.
    pub idle_user: bool,
}

impl Design {
    pub const NAMES: [&str; 6] =
        ["current_on_queue", "yield_mutex", "idle_loop", "child_first", "preempt_flag", "idle_user"];

    fn choices(&mut self) -> [&mut bool; 6] {
        [
            &mut self.current_on_queue,
            &mut self.yield_mutex,
            &mut self.idle_loop,
            &mut self.child_first,
            &mut self.preempt_flag,
            &mut self.idle_user,
        ]
    }

    /// The design with these variants, by name.
    pub fn parse<S: AsRef<str>>(names: &[S]) -> Result<Design, BuildError> {
        let mut design = Design::default();
        for name in names {
            let Some(i) = Design::NAMES.iter().position(|n| *n == name.as_ref()) else {
                let text = format!("no design `{}`; there are {}", name.as_ref(), Design::NAMES.join(", "));
                return Err(BuildError::Unknown(text));
            };
            *design.choices()[i] = true;
        }
        if design.is_contradictory() {
            let text = "the designs `idle_loop` and `idle_user` exclude each other: with the first there is no idle thread";
            return Err(BuildError::Unknown(text.to_owned()));
        }
        Ok(design)
    }

    fn is_contradictory(self) -> bool {
        self.idle_loop && self.idle_user
    }

    /// The design in which everything is done the other way, with the last thread's stack to idle on.
    #[must_use]
    pub fn otherwise() -> Design {
        Design {
            current_on_queue: true,
            yield_mutex: true,
            idle_loop: true,
            child_first: true,
            preempt_flag: true,
            idle_user: false,
        }
    }

    /// All combinations that there are, the default first.
    pub fn all() -> impl Iterator<Item = Design> {
        let designs = (0..1 << Design::NAMES.len()).map(|bits: u32| {
            let mut design = Design::default();
            for (i, choice) in design.choices().into_iter().enumerate() {
                *choice = bits >> i & 1 == 1;
            }
            design
        });
        designs.filter(|design| !design.is_contradictory())
    }

    /// The variants that differ from the default, by name.
    #[must_use]
    pub fn names(mut self) -> Vec<&'static str> {
        let chosen = self.choices().map(|choice| *choice);
        Design::NAMES.into_iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name).collect()
    }

    fn macros(self) -> Vec<String> {
        self.names().iter().map(|name| format!("DESIGN_{}", name.to_uppercase())).collect()
    }
}

/// How large the programs with hardware transactions are; `None` is as each program has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub threads: Option<u32>,
    /// How often each thread does it.
    pub iterations: Option<u32>,
}

impl Size {
    /// Threads, and iterations of a thread, at most: each thread of `swap` has a bit of a number.
    pub const MAX: u32 = 30;

    fn macros(self) -> Result<Vec<String>, BuildError> {
        let named = [
            ("HTM_THREADS", "threads", 2, self.threads),
            ("HTM_ITERATIONS", "iterations", 1, self.iterations),
        ];
        let mut macros = Vec::new();
        for (name, what, least, value) in named {
            let Some(value) = value else { continue };
            if !(least..=Self::MAX).contains(&value) {
                let most = Self::MAX;
                return Err(BuildError::Unknown(format!(
                    "no programs of {value} {what}: {least} to {most} are possible"
                )));
            }
            macros.push(format!("{name}={value}"));
        }
        Ok(macros)
    }
}

/// A choice of what to build. The default is the correct kernel in its default design.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Names from the catalogue.
    pub faults: Vec<String>,
    pub design: Design,
}

impl Build {
    fn macros(&self) -> Result<Vec<String>, BuildError> {
        let catalogue = faults();
        let mut macros = self.design.macros();
        for name in &self.faults {
            let Some(fault) = catalogue.iter().find(|f| f.name == *name) else {
                let names: Vec<&str> = catalogue.iter().map(|f| f.name.as_str()).collect();
                return Err(BuildError::Unknown(format!(
                    "no fault `{name}`; there are {}",
                    names.join(", ")
                )));
            };
            macros.extend(fault.flag.clone());
        }
        Ok(macros)
    }

    /// Builds kernel and programs into a folder.
    pub fn image(&self, out: &Path) -> Result<Image, BuildError> {
        self.image_from(&sources(), &cache(), out)
    }

    /// Builds kernel and programs into a folder, the programs with hardware transactions being of this size.
    pub fn image_sized(&self, size: Size, out: &Path) -> Result<Image, BuildError> {
        self.image_of(size, &[], out)
    }

    /// Builds the kernel and its programs, with these executables for Pebbles among them.
    pub fn image_of(&self, size: Size, executables: &[PathBuf], out: &Path) -> Result<Image, BuildError> {
        let macros = [self.macros()?, size.macros()?].concat();
        image::build_with(&sources(), &cache(), &macros, (&[], executables), out)
    }

    /// Builds kernel and programs from sources elsewhere, which must be in a folder named `guests`, and with
    /// a cache elsewhere.
    pub fn image_from(&self, sources: &Path, cache: &Path, out: &Path) -> Result<Image, BuildError> {
        image::build(sources, cache, &self.macros()?, &[], out)
    }

    /// Builds kernel and programs into a folder, and these programs beside the bundled ones.
    pub fn image_with(&self, programs: &[Program], out: &Path) -> Result<Image, BuildError> {
        image::build(&sources(), &cache(), &self.macros()?, programs, out)
    }
}

/// Every fault in every design, and every design without faults.
#[must_use]
pub fn all_builds() -> Vec<Build> {
    let faults: Vec<Fault> = faults().into_iter().filter(|f| f.flag.is_some()).collect();
    let mut builds = Vec::new();
    for design in Design::all() {
        builds.push(Build { faults: Vec::new(), design });
        builds.extend(faults.iter().map(|f| Build { faults: vec![f.name.clone()], design }));
    }
    builds
}

/// Compiles (but does not link) all that these builds need, each distinct compilation once; returns how many
/// those were.
pub fn check(builds: &[Build]) -> Result<usize, BuildError> {
    let sets = builds.iter().map(Build::macros).collect::<Result<Vec<_>, _>>()?;
    image::check(&sources(), &cache(), &sets)
}

/// Where the C sources are: beside this crate's.
#[must_use]
pub fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn cache() -> PathBuf {
    sources().join("../target/guests")
}

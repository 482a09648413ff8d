//! A Linux kernel with modules as what counterexamples are tried on: each process of the model is a
//! processor.

use crate::commands::linux::{WantedModules, store};
use crate::files::read;
use crate::model::drive::Ground;
use crate::smp::snapshots::Cache;
use crate::smp::target::{SmpArguments, load};
use crate::target::TargetArguments;
use campaign::Failure;
use campaign::smp;
use campaign::smp::target::SmpTarget;
use guest::driving::multiprocessor::Multiprocessor;
use guest::elf::image::Image;
use guest::linux::placed::placed;
use guest::view::View;
use guests::linux::debian::Kernel;
use guests::linux::module;
use promela::Check;
use promela::check::KernelUnderTest;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Cancelled, CpuId};

fn bad(error: impl std::fmt::Display) -> Failure {
    Failure::BadInput(error.to_string())
}

/// The image of a check that takes whichever kernel was fetched last.
const NEWEST: &str = "linux";

/// The kernel that a check names.
fn fetched(image: &str) -> Result<Kernel, Failure> {
    let store = store(None)?;
    let found = match image {
        NEWEST => store.kernels().pop(),
        version => store.find(version),
    };
    let version = if image == NEWEST { "" } else { image };
    found.ok_or_else(|| {
        bad(format!("no such kernel is here: {image}; `rockfall linux fetch {version} --headers` brings one"))
    })
}

/// The modules of a check, built, in the order of the check file.
struct Built {
    kernel: Kernel,
    sources: Vec<PathBuf>,
    modules: Vec<PathBuf>,
    headers: PathBuf,
}

fn build(check: &Check, kernel: &KernelUnderTest, folder: &Path) -> Result<Built, Failure> {
    let found = fetched(&kernel.image)?;
    let sources: Vec<PathBuf> = kernel.modules.iter().map(|path| folder.join(path)).collect();
    let wanted = WantedModules { modules: &[], sources: &sources, macros: &check.source.define };
    let modules = wanted.files(|| fetched(&kernel.image).map(Some))?;
    let headers = found.headers(&|text| eprintln!("rockfall: {text}")).map_err(bad)?;
    Ok(Built { kernel: found, sources, modules, headers })
}

/// Adds the flags with which the kernel's own build compiles the module that the source is of.
pub fn add_flags(check: &mut Check, kernel: &KernelUnderTest, folder: &Path) -> Result<(), Failure> {
    let built = build(check, kernel, folder)?;
    let of_module = |file: &String| built.sources.iter().position(|source| *source == folder.join(file));
    let Some(at) = check.source.files.iter().find_map(of_module) else {
        return Err(bad("'kernel.modules' names none of 'source.files': the model must be of a module"));
    };
    check.source.flags.extend(module::flags(&built.modules[at], &built.headers).map_err(bad)?);
    Ok(())
}

/// The kernel with the module that the model was made from.
pub struct LinuxKernel {
    pub target: SmpTarget,
    subject: Multiprocessor,
    image: Arc<Image>,
}

impl LinuxKernel {
    /// Boots to the test; `instead` is another kernel.
    pub fn start(
        check: &Check,
        kernel: &KernelUnderTest,
        folder: &Path,
        instead: Option<&Path>,
        late: &Cancelled,
    ) -> Result<Self, Failure> {
        let built = build(check, kernel, folder)?;
        let arguments = TargetArguments {
            kernel: instead.map_or_else(|| built.kernel.image(), Path::to_owned),
            append: kernel.append.clone(),
            memory: kernel.memory_megabytes.map(|megabytes| u64::from(megabytes) << 20),
            smp: SmpArguments {
                cpus: kernel.cpus,
                module_source: built.sources.clone(),
                module_define: check.source.define.clone(),
                ..SmpArguments::default()
            },
            ..TargetArguments::default()
        };
        let target = load(&arguments, &folder.join(&kernel.test))?;
        let subject = target.start(&Cache, late)?;
        let image = built.modules.iter().find_map(|module| {
            let name = module.file_stem()?.to_string_lossy().into_owned();
            let is_of = |file: &String| Path::new(file).file_stem().is_some_and(|stem| *stem == *name);
            check.source.files.iter().any(is_of).then_some((name, module.with_extension("debug")))
        });
        let (name, debug) = image.ok_or_else(|| bad("'kernel.modules' names none of 'source.files'"))?;
        let knowledge = subject.knowledge().clone();
        let loaded = knowledge.modules().iter().find(|module| module.name == name.replace('-', "_"));
        let loaded = loaded.ok_or_else(|| bad(format!("the guest has not loaded module '{name}'")))?;
        let view = View { machine: subject.machine(), cpu: CpuId(0) };
        let image = placed(&name, &read(&debug)?, loaded, &view).map_err(bad)?;
        Ok(Self { target, subject, image })
    }

    pub fn ground(&self) -> Ground<'static, Multiprocessor> {
        Ground {
            world: smp::world(self.subject.clone()),
            image: self.image.clone(),
            machine: Multiprocessor::machine,
            target: None,
        }
    }
}

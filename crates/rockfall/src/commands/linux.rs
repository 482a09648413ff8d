//! `rockfall linux`: kernels, and tests for them.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use guest::elf::image::ImageHash;
use guests::linux::debian::{self, Kernel, Store};
use guests::linux::disk::{self, Program};
use guests::linux::module::Modules;
use guests::linux::{Pack, Placed};

use crate::files::write_whole;
use crate::verdict::Verdict;
use campaign::Failure;

const PACK_EXAMPLES: &str = "\
Examples:
  rockfall linux pack mytest.c -o mytest.img
  rockfall linux pack mytest.c --module loop.ko --file /bin/busybox=bin/busybox
  rockfall linux pack mytest.c --kernel 6.1.0-54 --module ext4 --module-source mydriver.c
  rockfall run vmlinuz --initramfs mytest.img --cpus 2";

const FETCH_EXAMPLES: &str = "\
Examples:
  rockfall linux fetch                                  # Debian's kernel of today
  rockfall linux fetch --list                           # what the archive has
  rockfall linux fetch 6.1.0-47 --module ext4 --headers # with a file system and what modules are built against";

/// Brings Linux kernels, and prepares tests for them.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Fetch(FetchArguments),
    Image(ImageArguments),
    Pack(PackArguments),
}

/// Brings a kernel of Debian from the package archive; nothing is installed.
#[derive(Args)]
#[command(after_help = FETCH_EXAMPLES)]
struct FetchArguments {
    /// The version, as 6.1.0-54 or 6.12.115 [default: the one that linux-image-amd64 stands for]
    version: Option<String>,
    /// Lists the versions that the archive has, and those that are here
    #[arg(long, conflicts_with_all = ["version", "module", "headers"])]
    list: bool,
    /// A module of the kernel to bring, with all that it depends on
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Brings the headers that modules are built against
    #[arg(long)]
    headers: bool,
    /// The folder where kernels are kept [default: rockfall/linux in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Makes a file system for tests, as a file that `linux pack --file` takes.
#[derive(Args)]
struct ImageArguments {
    /// ext4, btrfs, jfs or xfs
    kind: String,
    /// Where the image goes [default: the name of the file system, ending in .image]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The folder where programs are kept that the host lacks [default: rockfall/linux in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
}

/// Compiles tests and packs them into an initramfs, with the helper that runs them.
#[derive(Args)]
#[command(after_help = PACK_EXAMPLES)]
struct PackArguments {
    /// C files: each defines `rockfall_test` (see docs/linux.md), or is a program of its own
    tests: Vec<PathBuf>,
    /// Where the image goes [default: the first test's name, ending in .img]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A kernel module that is loaded before the tests, in the order given: a file, or with --kernel the name
    /// of one of its modules, which brings what it depends on
    #[arg(long, value_name = "FILE|NAME")]
    module: Vec<String>,
    /// A kernel module to build and load: a C file; needs --kernel
    #[arg(long, value_name = "FILE.c")]
    module_source: Vec<PathBuf>,
    /// The fetched kernel that modules are taken from and built for
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,
    /// The folder where kernels are kept [default: rockfall/linux in the user's cache]
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
    /// A program to put into /bin of the image with the libraries it needs: a path, or the name of one of the
    /// host or of a checker of file systems (e2fsck, btrfs, fsck.jfs, xfs_repair)
    #[arg(long, value_name = "FILE|NAME")]
    program: Vec<String>,
    /// A further file, and after '=' its place in the image
    #[arg(long, value_name = "FILE=PLACE", value_parser = parse_placed)]
    file: Vec<Placed>,
}

pub fn parse_placed(text: &str) -> Result<Placed, String> {
    let (from, to) = text.rsplit_once('=').ok_or("give a file and its place, as busybox=bin/busybox")?;
    let to = to.trim_start_matches('/').to_owned();
    if to.is_empty() || to.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(format!("'{to}' is no place for a file in an image"));
    }
    Ok(Placed { from: from.into(), to })
}

fn bad_input(error: impl ToString) -> Failure {
    Failure::BadInput(error.to_string())
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::end_at_once();
    match &arguments.command {
        Command::Fetch(arguments) => fetch(arguments),
        Command::Image(arguments) => image(arguments),
        Command::Pack(arguments) => pack(arguments),
    }
}

/// The folder of kernels that was named, or the usual one.
pub fn store(folder: Option<&PathBuf>) -> Result<Store, Failure> {
    let usual =
        || Store::usual().ok_or_else(|| bad_input("no folder for kernels: HOME is not set; name one"));
    folder.map_or_else(usual, |folder| Ok(Store::new(folder)))
}

fn say(text: &str) {
    eprintln!("rockfall: {text}");
}

fn fetch(arguments: &FetchArguments) -> Result<Verdict, Failure> {
    let store = store(arguments.into.as_ref())?;
    if arguments.list {
        let here = store.kernels();
        let is_here = |release: &str| here.iter().any(|kernel| kernel.release == release);
        let mut releases = debian::available().map_err(bad_input)?;
        releases.extend(here.iter().map(|kernel| kernel.release.clone()));
        releases.sort_by(|a, b| debian::by_version(a, b));
        releases.dedup();
        for release in releases {
            println!("{release}{}", if is_here(&release) { "  (here)" } else { "" });
        }
        return Ok(Verdict::Fine);
    }
    let kernel = store.fetch(arguments.version.as_deref(), &say).map_err(bad_input)?;
    let image = kernel.image();
    let bytes = fs::read(&image).map_err(|error| bad_input(format!("{}: {error}", image.display())))?;
    println!("{}  {}  hash {}", kernel.release, image.display(), ImageHash::of(&bytes));
    for module in kernel.modules(&arguments.module).map_err(bad_input)? {
        println!("module  {}", module.display());
    }
    if arguments.headers {
        println!("headers  {}", kernel.headers(&say).map_err(bad_input)?.display());
    }
    Ok(Verdict::Fine)
}

/// The modules to load: files, modules of a fetched kernel by name, and those that are built for it now.
pub struct WantedModules<'a> {
    pub modules: &'a [String],
    pub sources: &'a [PathBuf],
    /// Macros that are defined when sources are compiled.
    pub macros: &'a [String],
}

impl WantedModules<'_> {
    /// The files of the modules, in the order in which they are to be loaded. `kernel` is asked for if one is
    /// needed.
    pub fn files(
        &self,
        kernel: impl FnOnce() -> Result<Option<Kernel>, Failure>,
    ) -> Result<Vec<PathBuf>, Failure> {
        let is_file = |module: &&String| module.contains('/') || module.contains(".ko");
        let named: Vec<String> = self.modules.iter().filter(|module| !is_file(module)).cloned().collect();
        let mut modules = Vec::new();
        if !named.is_empty() || !self.sources.is_empty() {
            let what = "say with --kernel which kernel a module is named for or built for";
            let kernel = kernel()?.ok_or_else(|| Failure::BadFlag(what.to_owned()))?;
            modules = kernel.modules(&named).map_err(bad_input)?;
            if !self.sources.is_empty() {
                let headers = kernel.headers(&say).map_err(bad_input)?;
                let sources = Modules { sources: self.sources.to_vec(), macros: self.macros.to_vec() };
                modules.extend(sources.build(&headers, &kernel.folder().join("built")).map_err(bad_input)?);
            }
        }
        // Files come last: they may need what the kernel brings.
        modules.extend(self.modules.iter().filter(is_file).map(PathBuf::from));
        Ok(modules)
    }
}

fn modules(arguments: &PackArguments) -> Result<Vec<PathBuf>, Failure> {
    let wanted = WantedModules { modules: &arguments.module, sources: &arguments.module_source, macros: &[] };
    let find = |version: &String| {
        let missing =
            || bad_input(format!("kernel {version} is not here; `rockfall linux fetch {version}` brings it"));
        store(arguments.kernels.as_ref())?.find(version).ok_or_else(missing)
    };
    // Asked for at once: a version that is not here is worth a word even where nothing is taken from it.
    let kernel = arguments.kernel.as_ref().map(find).transpose()?;
    wanted.files(|| Ok(kernel))
}

fn image(arguments: &ImageArguments) -> Result<Verdict, Failure> {
    let store = store(arguments.kernels.as_ref())?;
    let image = disk::make(&arguments.kind, &store, &say).map_err(bad_input)?;
    let output = arguments.output.clone().unwrap_or_else(|| format!("{}.image", arguments.kind).into());
    write_whole(&output, &image)?;
    eprintln!("rockfall: {} ({} KiB)", output.display(), image.len().div_ceil(1024));
    Ok(Verdict::Fine)
}

fn pack(arguments: &PackArguments) -> Result<Verdict, Failure> {
    let output = match (&arguments.output, arguments.tests.first()) {
        (Some(output), _) => output.clone(),
        (None, Some(test)) => PathBuf::from(test.file_name().unwrap_or_default()).with_extension("img"),
        (None, None) => {
            return Err(Failure::BadFlag("give a test to pack, or with -o a name for the image".to_owned()));
        }
    };
    let modules = modules(arguments)?;
    let mut files = arguments.file.clone();
    for name in &arguments.program {
        let program = Program::find(name, &store(arguments.kernels.as_ref())?, &say).map_err(bad_input)?;
        for file in program.files().map_err(bad_input)? {
            if !files.iter().any(|known| known.to == file.to) {
                files.push(file);
            }
        }
    }
    let pack = Pack { tests: arguments.tests.clone(), modules, files };
    let image = pack.build().map_err(bad_input)?;
    write_whole(&output, &image)?;
    eprintln!("rockfall: {} ({} KiB)", output.display(), image.len().div_ceil(1024));
    Ok(Verdict::Fine)
}

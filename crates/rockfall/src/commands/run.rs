//! `rockfall run`: boot a kernel, its console on the terminal.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use machine::board::{BoardConfig, CPUS_MAX};
use machine::boot::{Boot, BootOptions, Format, Module};
use machine::devices::clock::Clock;
use machine::devices::disk::Disk;
use machine::{Machine, Tsx};

use crate::session::{Goal, Keys, Session, Typing};
use crate::snapshot_file;
use crate::verdict::Verdict;
use campaign::size::parse_size;
use campaign::{Failure, store};

const MEMORY: u64 = 64 << 20;
const LINUX_MEMORY: u64 = 512 << 20;
const DISKS_MAX: usize = 4;

const EXAMPLES: &str = "\
Examples:
  rockfall run kernel.elf                           a Multiboot or plain ELF kernel
  rockfall run kernel.elf --append \"test=fork\" --module initrd.img
  rockfall run os.img --disk fs.img --cpus 2        a disk image, and a second disk
  rockfall run vmlinuz --initramfs test.img --cpus 2 --save test.snapshot
  rockfall run vmlinuz --initramfs test.img --cpus 2 --from test.snapshot
  rockfall run os.img --type \"ls\\n\" --instructions 2000000000 --screen

The kernel's serial output is the console; a kernel that uses none shows its screen instead.
When the standard input is a terminal, keys go to the guest's keyboard (to the serial port of a Linux
kernel), and Ctrl-C ends the run.
A line given with --type is typed when the console has been quiet for a while.";

/// Boots a kernel and shows its console.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A Multiboot kernel, a plain 32-bit ELF kernel, a Linux kernel for amd64, or a bootable disk image
    kernel: PathBuf,
    /// Processors
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(CPUS_MAX)))]
    cpus: u8,
    /// Memory, as 512K, 64M or 1G; a plain number is MiB [default: 64M, for Linux 512M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Processors with hardware transactional memory (RTM)
    #[arg(long)]
    tsx: bool,
    /// A further disk image; what the guest writes is forgotten at the end
    #[arg(long, value_name = "FILE")]
    disk: Vec<PathBuf>,
    /// Command line for a Multiboot or Linux kernel, after its name or after what every Linux kernel is given
    /// here
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, default_value = "")]
    append: String,
    /// A Multiboot module: a file, and after a blank its command line
    #[arg(long, value_name = "FILE")]
    module: Vec<String>,
    /// An initial file system for a Linux kernel ('rockfall linux pack' makes one); several are laid over one
    /// another
    #[arg(long, value_name = "FILE")]
    initramfs: Vec<PathBuf>,
    /// Text for the keyboard; \n, \t, \e, \\ and \xNN are understood
    #[arg(long = "type", value_name = "TEXT", default_value = "")]
    typed: String,
    /// Stop when the threads of a test are in place, and save the machine
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Start from a machine that was saved, instead of booting; kernel and flags must be the same
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Stop after so many instructions
    #[arg(long, value_name = "N")]
    instructions: Option<u64>,
    /// Show the screen at the end
    #[arg(long)]
    screen: bool,
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Unreadable { path: path.to_owned(), error })
}

fn parse_module(text: &str) -> Result<Module, Failure> {
    let path = text.split(' ').next().unwrap_or(text);
    Ok(Module { command_line: text.to_owned(), bytes: read(Path::new(path))? })
}

/// The boot options of the kernel, as far as kernels of this format take any.
fn options(arguments: &Arguments, format: Format, clock: Clock) -> Result<BootOptions, Failure> {
    let refuse = |flags: &str, format_wanted| {
        let kernel = arguments.kernel.display();
        let message = format!("{flags} for {format_wanted}s, and {kernel} is not one: {format}");
        Err(Failure::BadFlag(message))
    };
    if format != Format::Linux && !arguments.initramfs.is_empty() {
        return refuse("--initramfs is", Format::Linux);
    }
    if format != Format::Multiboot && !arguments.module.is_empty() {
        return refuse("--module is", Format::Multiboot);
    }
    let first = match format {
        Format::Linux => machine::boot::linux::default_command_line(clock),
        Format::Multiboot => {
            arguments.kernel.file_name().and_then(OsStr::to_str).unwrap_or("kernel").to_owned()
        }
        Format::Elf | Format::Disk if arguments.append.is_empty() => String::new(),
        Format::Elf | Format::Disk => return refuse("--append is for Linux or", Format::Multiboot),
    };
    let files =
        arguments.initramfs.iter().map(|path| Ok(Module { command_line: String::new(), bytes: read(path)? }));
    let modules = arguments.module.iter().map(|text| parse_module(text));
    Ok(BootOptions {
        command_line: [&first, &arguments.append].map(String::as_str).join(" ").trim_end().to_owned(),
        modules: modules.chain(files).collect::<Result<_, _>>()?,
    })
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let mut disks = [const { None }; DISKS_MAX];
    if arguments.disk.len() > DISKS_MAX {
        return Err(Failure::BadFlag("at most four disks".to_owned()));
    }
    for (slot, path) in disks.iter_mut().zip(&arguments.disk) {
        *slot = Some(Disk::new(read(path)?));
    }
    let typing = Typing::parse(&arguments.typed).map_err(Failure::BadFlag)?;
    let file = read(&arguments.kernel)?;
    let not_bootable = |error| Failure::NotBootable { path: arguments.kernel.clone(), error };
    let format = Format::detect(&file).map_err(not_bootable)?;
    let memory_default = if format == Format::Linux { LINUX_MEMORY } else { MEMORY };
    let memory_bytes = arguments.memory.unwrap_or(memory_default);
    let config = BoardConfig {
        cpus: arguments.cpus,
        memory_bytes,
        disks,
        tsx: arguments.tsx.then(Tsx::default),
        ..BoardConfig::default()
    };
    let options = options(arguments, format, config.clock)?;
    let boot = Boot { kernel: &file, options, board: config };
    let image = store::image(&boot);
    let machine = match &arguments.from {
        Some(path) => snapshot_file::read(path, image)?,
        None => Machine::boot(boot).map_err(|error| Failure::of_boot(&arguments.kernel, error))?,
    };
    let goal = if arguments.save.is_some() { Goal::TestStart } else { Goal::End };
    let keys = if format == Format::Linux { Keys::Serial } else { Keys::Keyboard };
    let finished = Session::new(machine, typing, arguments.instructions, goal, keys).run(arguments.screen)?;
    if let Some(path) = &arguments.save {
        if !finished.at_test_start {
            let message = "no test began, so there is nothing to save; a test says so as docs/linux.md shows";
            return Err(Failure::BadInput(message.to_owned()));
        }
        snapshot_file::write(path, &finished.machine, image)?;
    }
    Ok(finished.verdict)
}

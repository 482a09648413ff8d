//! `rockfall run`: boot a kernel, its console on the terminal.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use machine::board::{BoardConfig, CPUS_MAX};
use machine::boot::{self, BootOptions, Format, Module};
use machine::devices::disk::Disk;
use machine::{Cpu, Machine};

use crate::failure::{Failure, Verdict};
use crate::session::{Session, Typing};

/// The address space ends in device registers.
const MEMORY_MAX: u64 = 3 << 30;
const MEMORY_MIN: u64 = 1 << 20;
const DISKS_MAX: usize = 4;

const EXAMPLES: &str = "\
Examples:
  rockfall run kernel.elf                           a Multiboot or plain ELF kernel
  rockfall run kernel.elf --append \"test=fork\" --module initrd.img
  rockfall run os.img --disk fs.img --cpus 2        a disk image, and a second disk
  rockfall run os.img --type \"ls\\n\" --instructions 2000000000 --screen

The kernel's serial output is the console; a kernel that uses none shows its screen instead.
When the standard input is a terminal, keys go to the guest's keyboard, and Ctrl-C ends the run.
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
    /// Memory, as 512K, 64M or 1G; a plain number is MiB
    #[arg(long, default_value = "64M", value_name = "SIZE", value_parser = parse_size)]
    memory: u64,
    /// A further disk image; what the guest writes is forgotten at the end
    #[arg(long, value_name = "FILE")]
    disk: Vec<PathBuf>,
    /// Command line for a Multiboot or Linux kernel, after its name or after what every Linux kernel is told here
    #[arg(long, value_name = "TEXT", default_value = "")]
    append: String,
    /// A Multiboot module: a file, and after a blank its command line
    #[arg(long, value_name = "FILE")]
    module: Vec<String>,
    /// An initial file system for a Linux kernel ('rockfall linux pack' makes one); several are laid over one another
    #[arg(long, value_name = "FILE")]
    initramfs: Vec<PathBuf>,
    /// Text for the keyboard; \n, \t, \e, \\ and \xNN are understood
    #[arg(long = "type", value_name = "TEXT", default_value = "")]
    typed: String,
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

pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix.to_ascii_uppercase().as_str() {
        "K" | "KB" | "KIB" => 10,
        "" | "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err("give a size as 512K, 64M or 1G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "give a size as 512K, 64M or 1G".to_owned())?;
    let bytes = number.saturating_mul(1 << shift);
    if (MEMORY_MIN..=MEMORY_MAX).contains(&bytes) { Ok(bytes) } else { Err("between 1M and 3G".to_owned()) }
}

fn parse_module(text: &str) -> Result<Module, Failure> {
    let path = text.split(' ').next().unwrap_or(text);
    Ok(Module { command_line: text.to_owned(), bytes: read(Path::new(path))? })
}

/// A machine with a kernel in it, ready to run.
pub fn boot(
    path: &Path,
    file: Vec<u8>,
    mut config: BoardConfig,
    options: &BootOptions,
) -> Result<(Machine, Format), Failure> {
    let not_bootable = |error| Failure::NotBootable { path: path.to_owned(), error };
    let format = Format::detect(&file).map_err(not_bootable)?;
    if format == Format::Disk {
        config.disks.rotate_right(1);
        if config.disks[0].is_some() {
            return Err(Failure::BadFlag("at most four disks, the kernel's among them".to_owned()));
        }
        config.disks[0] = Some(Disk::new(file.clone()));
    }
    let mut machine = Machine::new(config);
    let Machine { cpus, memory, board, .. } = &mut machine;
    let first: &mut Cpu = &mut cpus[0];
    boot::load(format, &file, options, memory, first, board).map_err(not_bootable)?;
    Ok((machine, format))
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let mut disks = [const { None }; DISKS_MAX];
    if arguments.disk.len() > DISKS_MAX {
        return Err(Failure::BadFlag("at most four disks".to_owned()));
    }
    for (slot, path) in disks.iter_mut().zip(&arguments.disk) {
        *slot = Some(Disk::new(read(path)?));
    }
    let config =
        BoardConfig { cpus: arguments.cpus, memory_bytes: arguments.memory, disks, ..BoardConfig::default() };
    let name = arguments.kernel.file_name().and_then(OsStr::to_str).unwrap_or("kernel");
    let options = BootOptions {
        command_line: [name, &arguments.append].join(" ").trim_end().to_owned(),
        modules: arguments.module.iter().map(|text| parse_module(text)).collect::<Result<_, _>>()?,
    };
    let typing = Typing::parse(&arguments.typed).map_err(Failure::BadFlag)?;
    let file = read(&arguments.kernel)?;
    let (machine, format) = boot(&arguments.kernel, file, config, &options)?;
    if format != Format::Multiboot && !(arguments.append.is_empty() && arguments.module.is_empty()) {
        return Err(Failure::BadFlag(format!(
            "--append and --module are for Multiboot kernels, and {} is not one: {format}",
            arguments.kernel.display()
        )));
    }
    Session::new(machine, typing, arguments.instructions).run(arguments.screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in
            [("64M", Some(64 << 20)), ("1g", Some(1 << 30)), ("2048K", Some(2 << 20)), ("16", Some(16 << 20))]
        {
            assert_eq!(parse_size(text).ok(), size, "{text}");
        }
        for text in ["", "M", "64X", "-1M", "4G", "99999999999999999999G", "1K"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}

//! `rockfall new`: from the folder of a course's project to the first command that tests it.
//!
//! Contract: the project is built by its own makefile, with a compiler that puts today's flags behind those of the makefile;
//! no file of the project is changed. What is made beside it goes into one folder: that compiler, a disk where one is needed,
//! and a copy of the description to be changed. At the end stand the lines to type.

use crate::files::{Files, read, write_whole};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::described::description;
use clap::{Args, ValueEnum};
use guest::image::Image;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Pintos for x86: the threads project
    Pintos,
    /// xv6 for x86
    Xv6,
    /// A Pebbles kernel in the folder of its course; its description is drafted
    P3,
}

/// Builds a course's project with today's compiler, writes what Rockfall needs, and says what to type.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall new pintos ~/pintos\n  \
    rockfall new xv6 ~/xv6-public -o xv6-rockfall")]
pub struct Arguments {
    /// What the project is
    pub kind: Kind,
    /// Its folder
    pub folder: PathBuf,
    /// Where what is made goes [default: 'rockfall' in FOLDER]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// The compiler
    #[arg(long, value_name = "PROGRAM", default_value = "gcc")]
    pub compiler: String,
}

/// Flags that makefiles of other years do not give, and compilers of today need.
const FLAGS: &str =
    "-fcommon -fno-pie -fno-pic -fno-stack-protector -fcf-protection=none -fno-omit-frame-pointer -Wno-error";
/// How many lines of a failed build are shown.
const LINES_TOLD: usize = 12;
/// How many tests are named.
const TESTS_TOLD: usize = 8;

const SECTOR: usize = 512;
/// Offsets in a boot sector of Pintos: where the loader's code ends, the partition table is, and the
/// signature.
const LOADER_BYTES: usize = 314;
const PARTITIONS: usize = 446;
const SIGNATURE: usize = 510;
/// The type of the partition with Pintos' kernel.
const PINTOS_KERNEL: u8 = 0x20;

struct Project {
    /// The folder of its makefile.
    root: PathBuf,
    output: PathBuf,
}

/// The part of the commands to type that depends on the project.
struct Ready {
    /// The kernel and whatever else is behind it on the command line.
    kernel: String,
    /// The description, written beside the kernel.
    description: PathBuf,
    tests: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let folder = arguments.folder.canonicalize();
    let folder = folder.map_err(|error| Failure::Unreadable { path: arguments.folder.clone(), error })?;
    let output = arguments.output.clone().unwrap_or_else(|| folder.join("rockfall"));
    std::fs::create_dir_all(&output).map_err(|error| Failure::Unwritable { path: output.clone(), error })?;
    let output =
        output.canonicalize().map_err(|error| Failure::Unwritable { path: output.clone(), error })?;
    let root = find_root(arguments.kind, &folder)?;
    let compiler = write_compiler(&output, &arguments.compiler)?;
    let project = Project { root, output };
    let ready = match arguments.kind {
        Kind::Pintos => project.pintos(&compiler)?,
        Kind::Xv6 => project.xv6(&compiler)?,
        Kind::P3 => project.p3(&compiler)?,
    };
    ready.tell();
    Ok(Verdict::Fine)
}

/// The folder with the makefile, known by what is beside it.
fn find_root(kind: Kind, folder: &Path) -> Result<PathBuf, Failure> {
    let (mark, inner) = match kind {
        Kind::Pintos => ("threads/Makefile", ["", "src", "pintos/src", "pintos"]),
        Kind::Xv6 => ("kernel.ld", ["", "xv6", "xv6-public", "src"]),
        Kind::P3 => ("config.mk", ["", "p3", "kernel", "src"]),
    };
    let places = inner.iter().map(|inner| folder.join(inner));
    places.into_iter().find(|place| place.join(mark).exists()).ok_or_else(|| {
        Failure::BadInput(format!(
            "there is no {mark} in {} or in {} inside of it: give the folder of the project",
            folder.display(),
            inner[1..].join(", ")
        ))
    })
}

/// Writes a compiler that puts [`FLAGS`] behind whatever the makefile says.
fn write_compiler(output: &Path, compiler: &str) -> Result<PathBuf, Failure> {
    let path = output.join("cc");
    write_whole(&path, format!("#!/bin/sh\nexec {compiler} \"$@\" {FLAGS}\n").as_bytes())?;
    set_executable(&path).map_err(|error| Failure::Unwritable { path: path.clone(), error })?;
    Ok(path)
}

fn set_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

impl Project {
    /// Runs the makefile; if something goes wrong, its last lines are shown.
    fn make(&self, folder: &Path, compiler: &Path, more: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new("make");
        command.arg("-C").arg(folder).arg(format!("CC={}", compiler.display())).args(more);
        let output = command.output().map_err(|error| {
            Failure::BadInput(format!("'make' cannot be started: {error}; install it, and the compiler"))
        })?;
        if output.status.success() {
            return Ok(());
        }
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let told = why_it_failed(&text);
        Err(Failure::BadInput(format!(
            "'make -C {} CC={} {}' fails:\n  {}\nMend that, or build the kernel as your course says and use 'rockfall init' and \
             'rockfall doctor' on it.",
            folder.display(),
            compiler.display(),
            more.join(" "),
            told.join("\n  ")
        )))
    }

    fn describe(&self, name: &str) -> Result<PathBuf, Failure> {
        let (file, text) = description(&Files::default(), name)?;
        let path = self.output.join(file);
        if !path.exists() {
            write_whole(&path, text.as_bytes())?;
        }
        Ok(path)
    }

    fn pintos(&self, compiler: &Path) -> Result<Ready, Failure> {
        let threads = self.root.join("threads");
        self.make(&threads, compiler, &[])?;
        let build = threads.join("build");
        let disk = self.output.join("threads.dsk");
        write_whole(
            &disk,
            &pintos_disk(&read(&build.join("loader.bin"))?, &read(&build.join("kernel.bin"))?)?,
        )?;
        let source = read(&self.root.join("tests/threads/tests.c"))?;
        let tests = pintos_tests(&String::from_utf8_lossy(&source));
        let kernel = format!("{} --symbols {}", disk.display(), build.join("kernel.o").display());
        Ok(Ready { kernel, description: self.describe("pintos")?, tests })
    }

    fn xv6(&self, compiler: &Path) -> Result<Ready, Failure> {
        self.make(&self.root, compiler, &["kernelmemfs"])?;
        let makefile = read(&self.root.join("Makefile"))?;
        let tests = xv6_programs(&String::from_utf8_lossy(&makefile));
        let kernel =
            format!("{} --programs {}", self.root.join("kernelmemfs").display(), self.root.display());
        Ok(Ready { kernel, description: self.describe("xv6")?, tests })
    }

    fn p3(&self, compiler: &Path) -> Result<Ready, Failure> {
        self.make(&self.root, compiler, &["UPDATE_METHOD=offline"])?;
        let kernel = self.root.join("kernel");
        let image = Image::parse(&kernel.display().to_string(), &read(&kernel)?)
            .map_err(|error| Failure::BadInput(error.to_string()))?;
        let path = self.output.join("p3.toml");
        if !path.exists() {
            write_whole(&path, guest::init::draft(&image).as_bytes())?;
        }
        let programs = std::fs::read_dir(self.root.join("user/progs")).into_iter().flatten().flatten();
        let name = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut tests: Vec<String> = programs.filter_map(|entry| name(entry.path())).collect();
        tests.sort();
        tests.dedup();
        Ok(Ready { kernel: kernel.display().to_string(), description: path, tests })
    }
}

impl Ready {
    fn tell(&self) {
        let Self { kernel, description, tests } = self;
        let description = description.display();
        let test = tests.first().map_or("TEST", String::as_str);
        println!("The description is in {description}, to be changed where this kernel differs.");
        if tests.is_empty() {
            println!("No tests were found: a test is what is typed to the kernel.");
        } else {
            let more = tests.len().saturating_sub(TESTS_TOLD);
            let told = tests.iter().take(TESTS_TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            println!("Tests: {told}{more}");
        }
        println!("Now type:");
        println!("  rockfall doctor {kernel} -k {description} -t {test}");
        println!("  rockfall test {kernel} -k {description} -t {test} --budget 10m");
    }
}

/// The lines of a failed build that say what is wrong: those with an error, else the last ones.
fn why_it_failed(output: &str) -> Vec<&str> {
    let lines = || output.lines().filter(|line| !line.trim().is_empty());
    let mut told: Vec<&str> = lines().filter(|line| line.to_ascii_lowercase().contains("error")).collect();
    // Compilers are told what counts as an error in every line.
    told.retain(|line| !line.contains("-Werror") && !line.contains("-Wno-error"));
    if told.is_empty() {
        told = lines().collect();
    }
    told.drain(..told.len().saturating_sub(LINES_TOLD));
    if output.contains("bits/libc-header-start.h") {
        told.push("(a program for this computer is built for 32 bits, and its headers are missing: install gcc-multilib)");
    }
    told
}

/// The disk that the `pintos` script would make: the loader, a partition table with one entry, and the kernel.
fn pintos_disk(loader: &[u8], kernel: &[u8]) -> Result<Vec<u8>, Failure> {
    let sectors = kernel.len().div_ceil(SECTOR);
    let count =
        u32::try_from(sectors).map_err(|_| Failure::BadInput("the kernel is too large".to_owned()))?;
    let mut disk = vec![0; SECTOR * (1 + sectors)];
    let code = &loader[..loader.len().min(LOADER_BYTES)];
    disk[..code.len()].copy_from_slice(code);
    const BOOTABLE: u8 = 0x80;
    let entry = &mut disk[PARTITIONS..PARTITIONS + 16];
    (entry[0], entry[4]) = (BOOTABLE, PINTOS_KERNEL);
    entry[8..12].copy_from_slice(&1u32.to_le_bytes());
    entry[12..16].copy_from_slice(&count.to_le_bytes());
    disk[SIGNATURE..SECTOR].copy_from_slice(&[0x55, 0xaa]);
    disk[SECTOR..SECTOR + kernel.len()].copy_from_slice(kernel);
    Ok(disk)
}

/// The names in the table of tests: `{"alarm-single", test_alarm_single},`.
fn pintos_tests(source: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim().strip_prefix("{\"")?;
        let (name, function) = rest.split_once('"')?;
        function.contains("test_").then(|| name.to_owned())
    };
    source.lines().filter_map(name).collect()
}

/// The programs that a makefile of xv6 puts on the disk: `_forktest\`.
fn xv6_programs(makefile: &str) -> Vec<String> {
    let programs = makefile.split_once("UPROGS").map_or("", |(_, rest)| rest);
    let lines = programs.lines().skip(1).map(str::trim);
    let lines = lines.take_while(|line| line.starts_with('_'));
    let names = lines.map(|line| line.trim_end_matches('\\').trim().trim_start_matches('_').to_owned());
    // These are no tests.
    names.filter(|name| !["init", "sh"].contains(&name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_tells_what_is_wrong() {
        let output = "cc -Werror -c a.c\na.c:3:1: error: no such thing\na.c:9:1: warning: odd\nmake: *** [a.o] Error 1\n";
        assert_eq!(why_it_failed(output), ["a.c:3:1: error: no such thing", "make: *** [a.o] Error 1"]);
        assert_eq!(why_it_failed("one\n\ntwo\n"), ["one", "two"]);
        let headers = "stdio.h:27:10: fatal error: bits/libc-header-start.h: No such file or directory\n";
        assert!(why_it_failed(headers)[1].contains("install gcc-multilib"));
    }

    #[test]
    fn tests_are_found() {
        let source = "static const struct test tests[] =\n  {\n    {\"alarm-single\", test_alarm_single},\n    \
                      {\"mlfqs-block\", test_mlfqs_block},\n  };\n  {\"not\", a_test}\n";
        assert_eq!(pintos_tests(source), ["alarm-single", "mlfqs-block"]);
        let makefile = "UPROGS=\\\n\t_cat\\\n\t_init\\\n\t_forktest\\\n\nfs.img: mkfs\n\t_not\n";
        assert_eq!(xv6_programs(makefile), ["cat", "forktest"]);
    }

    #[test]
    fn a_disk_has_loader_partition_and_kernel() {
        let Ok(disk) = pintos_disk(&[7; 512], &[9; 700]) else { panic!("it fits") };
        assert_eq!(disk.len(), 3 * SECTOR);
        assert_eq!((disk[LOADER_BYTES - 1], disk[LOADER_BYTES]), (7, 0));
        assert_eq!(
            disk[PARTITIONS..SIGNATURE + 2][..16],
            [0x80, 0, 0, 0, 0x20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]
        );
        assert_eq!(disk[SIGNATURE..SECTOR], [0x55, 0xaa]);
        assert_eq!((disk[SECTOR], disk[SECTOR + 699], disk[SECTOR + 700]), (9, 9, 0));
    }
}

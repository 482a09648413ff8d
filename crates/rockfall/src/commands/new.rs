//! `rockfall new`: from the folder of a course's project to the first command that tests it.
//!
//! Contract: the project is built by its own makefile, with tools that put what is needed today behind what
//! the makefile says ([`tools`]). No file of the project is changed, except by `--tests`, which adds lines to
//! two files of Pintos; files with tests are added where that is the point. What is made beside it goes into
//! one folder: those tools, a disk where one is needed, and a copy of the description to be changed. At the
//! end stand the lines to type.

mod pebbles;
mod pintos;
mod tools;

use crate::files::{Files, read, write_whole};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::described::description;
use campaign::narrate::quoted;
use campaign::target::BUNDLED_KERNEL;
use clap::{Args, ValueEnum};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::Tools;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Pintos for x86: the threads project, whose tests are in the kernel
    Pintos,
    /// Pintos for x86: userprog, with its programs on a disk
    PintosUserprog,
    /// Pintos for x86: virtual memory, likewise, and with a place to swap to
    PintosVm,
    /// Pintos for x86: file systems, likewise
    PintosFilesys,
    /// xv6 for x86
    Xv6,
    /// A thread library on Pebbles, in the folder of its course; linked with our tests and run on the bundled
    /// kernel
    P2,
    /// A Pebbles kernel in the folder of its course; its description is drafted
    P3,
}

/// Builds a course's project with today's compiler, writes what Rockfall needs, and says what to type.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall new pintos ~/pintos --tests\n  \
    rockfall new pintos-userprog ~/pintos\n  \
    rockfall new pintos-userprog ~/pintos --put rox-child --put child-rox\n  \
    rockfall new xv6 ~/xv6-public -o xv6-rockfall\n  \
    rockfall new p2 ~/410/p2")]
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
    /// For Pintos: add our tests to tests/threads, where your own kernel build has them too
    #[arg(long)]
    pub tests: bool,
    /// For Pintos' projects with programs: put this on the disk too, a file or one of the course's programs by its name;
    /// repeat for more
    #[arg(long, value_name = "FILE")]
    pub put: Vec<PathBuf>,
}

/// Tests that are named.
const TESTS_SHOWN: usize = 8;

struct Project {
    /// The folder of its makefile.
    root: PathBuf,
    output: PathBuf,
    tools: Tools,
}

/// The part of the commands to type that depends on the project.
struct Ready {
    /// What of the command line is the same for all tests.
    target: String,
    /// How a test is named on the command line, before its name.
    test_flag: String,
    /// The description that was written.
    description: PathBuf,
    tests: Vec<String>,
    /// Lines of the description that want an answer first.
    questions: usize,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    if arguments.tests && arguments.kind != Kind::Pintos {
        return Err(Failure::BadFlag("--tests is for 'pintos'".to_owned()));
    }
    let has_programs = matches!(arguments.kind, Kind::PintosUserprog | Kind::PintosVm | Kind::PintosFilesys);
    if !arguments.put.is_empty() && !has_programs {
        return Err(Failure::BadFlag(
            "--put is for 'pintos-userprog', 'pintos-vm' and 'pintos-filesys'".to_owned(),
        ));
    }
    let folder = arguments.folder.canonicalize();
    let folder = folder.map_err(|error| Failure::Unreadable { path: arguments.folder.clone(), error })?;
    let root = find_root(arguments.kind, &folder)?;
    let output = arguments.output.clone().unwrap_or_else(|| folder.join("rockfall"));
    std::fs::create_dir_all(&output).map_err(|error| Failure::Unwritable { path: output.clone(), error })?;
    let output =
        output.canonicalize().map_err(|error| Failure::Unwritable { path: output.clone(), error })?;
    let tools = Tools::write(&output, &arguments.compiler)?;
    let project = Project { root, output, tools };
    let ready = match arguments.kind {
        Kind::Pintos => project.pintos(arguments.tests)?,
        Kind::PintosUserprog => project.pintos_with_programs("userprog", &arguments.put)?,
        Kind::PintosVm => project.pintos_with_programs("vm", &arguments.put)?,
        Kind::PintosFilesys => project.pintos_with_programs("filesys", &arguments.put)?,
        Kind::Xv6 => project.xv6()?,
        Kind::P2 => project.p2()?,
        Kind::P3 => project.p3()?,
    };
    ready.show();
    Ok(Verdict::Fine)
}

/// The folder with the makefile, known by what is beside it.
fn find_root(kind: Kind, folder: &Path) -> Result<PathBuf, Failure> {
    type Known = fn(&Path) -> bool;
    const PINTOS: &[&str] = &["src", "pintos/src", "pintos"];
    let (what, inner, known): (_, &[&str], Known) = match kind {
        Kind::Pintos => ("threads/Makefile", PINTOS, |place| place.join("threads/Makefile").exists()),
        Kind::PintosUserprog => {
            ("userprog/Makefile", PINTOS, |place| place.join("userprog/Makefile").exists())
        }
        Kind::PintosVm => ("vm/Makefile", PINTOS, |place| place.join("vm/Makefile").exists()),
        Kind::PintosFilesys => ("filesys/Makefile", PINTOS, |place| place.join("filesys/Makefile").exists()),
        Kind::Xv6 => ("kernel.ld", &["xv6", "xv6-public", "src"], |place| place.join("kernel.ld").exists()),
        Kind::P2 => ("config.mk with user/libthread", &["p2", "src"], pebbles::is_library),
        Kind::P3 => ("config.mk with kern", &["p3", "kernel", "src"], pebbles::is_kernel),
    };
    let mut places = std::iter::once(folder.to_owned()).chain(inner.iter().map(|inner| folder.join(inner)));
    places.find(|place| known(place)).ok_or_else(|| {
        Failure::BadInput(format!(
            "there is no {what} in {} or in {} inside of it: give the folder of the project",
            folder.display(),
            inner.join(", ")
        ))
    })
}

impl Project {
    /// Describes a kernel by what ships, and says so if that is for another kernel of the same name.
    fn describe_kernel(&self, name: &str, kernel: &Path) -> Result<PathBuf, Failure> {
        let path = self.describe(name)?;
        let text = String::from_utf8_lossy(&read(&path)?).into_owned();
        let parsed = Description::parse(&path.display().to_string(), &text);
        let image = Image::parse(&kernel.display().to_string(), &read(kernel)?);
        if let (Ok(description), Ok(image)) = (parsed, image)
            && let Err(problems) = Kernel::resolve(&description, &image)
            && let Some(first) = problems.first()
        {
            println!(
                "The description is not made for this kernel. In {} places it names what is not there:",
                problems.len()
            );
            println!("  {first}");
            println!(
                "A draft may be a better beginning: rockfall init {} > {}",
                quoted(kernel),
                quoted(&path)
            );
        }
        Ok(path)
    }

    /// Writes a description that ships, to be changed, unless it is there.
    fn describe(&self, name: &str) -> Result<PathBuf, Failure> {
        let (file, text) = description(&Files::default(), name)?;
        let path = self.output.join(file);
        if !path.exists() {
            write_whole(&path, text.as_bytes())?;
        }
        Ok(path)
    }

    fn xv6(&self) -> Result<Ready, Failure> {
        let makefile = read(&self.root.join("Makefile"))?;
        let makefile = String::from_utf8_lossy(&makefile);
        // Some courses have taken the kernel with its file system in memory out.
        let named = makefile.lines().any(|line| line.starts_with("kernelmemfs:"));
        // Whoever has a cross compiler writes its prefix into the makefile; the host's own compiler is for
        // x86 already.
        let with_prefix = |goals: &[&str]| -> Vec<String> {
            goals.iter().chain(&["TOOLPREFIX="]).map(|&goal| goal.to_owned()).collect()
        };
        // Others have not built it since they changed what its own files include.
        let in_memory = named
            && self.tools.try_make(&self.root, &with_prefix(&["kernelmemfs"]))?.0
            && fits_first_map(&self.root.join("kernelmemfs"));
        let mut programs = self.root.clone();
        if !in_memory {
            let goals = with_prefix(&["kernel", "xv6.img", "fs.img"]);
            let (fine, said) = self.tools.try_make(&self.root, &goals)?;
            // What debugging information takes does not fit into a file of xv6, and nobody reads it there.
            if !fine && said.contains("MAXFILE") {
                programs = self.strip_programs()?;
            }
            if !fine {
                self.tools.make(&self.root, &goals)?;
            }
        }
        let at = |file: &str| quoted(&self.root.join(file));
        let (kernel, files) = match in_memory {
            true => ("kernelmemfs", at("kernelmemfs")),
            false => {
                ("kernel", format!("{} --symbols {} --disk {}", at("xv6.img"), at("kernel"), at("fs.img")))
            }
        };
        let description = self.describe_kernel("xv6", &self.root.join(kernel))?;
        let files = format!("{files} --programs {}", quoted(&programs));
        Ok(Ready::of_kernel(&files, &description, xv6_tests(xv6_programs(&self.root))))
    }

    /// Takes the debugging information out of xv6's programs; a folder with copies that have it.
    fn strip_programs(&self) -> Result<PathBuf, Failure> {
        let kept = self.output.join("programs");
        std::fs::create_dir_all(&kept).map_err(|error| Failure::Unwritable { path: kept.clone(), error })?;
        for name in xv6_programs(&self.root) {
            let built = self.root.join(format!("_{name}"));
            write_whole(&kept.join(format!("_{name}")), &read(&built)?)?;
            let strip = Command::new("strip").arg("--strip-debug").arg(&built).status();
            if !strip.is_ok_and(|status| status.success()) {
                return Err(Failure::BadInput(format!("'strip --strip-debug {}' fails", built.display())));
            }
        }
        Ok(kept)
    }
}

/// Whether xv6 with its file system in memory lies within the four megabytes that it has mapped when it begins: behind a large
/// file system its first stack does not.
fn fits_first_map(kernel: &Path) -> bool {
    const MAPPED: std::ops::Range<u64> = 0x8000_0000..0x8040_0000;
    let image = std::fs::read(kernel).ok().and_then(|file| Image::parse("kernelmemfs", &file).ok());
    let end = image.and_then(|image| image.symbol("end").map(|end| end.addr.0));
    // One that does not say where it ends is taken as it is.
    end.is_none_or(|end| MAPPED.contains(&end) || end < MAPPED.start)
}

impl Ready {
    /// `kernel`: the kernel and whatever else is behind it on the command line.
    fn of_kernel(kernel: &str, description: &Path, tests: Vec<String>) -> Self {
        let target = format!("{kernel} -k {}", quoted(description));
        let test_flag = "-t ".to_owned();
        Self { target, test_flag, description: description.to_owned(), tests, questions: 0 }
    }

    /// Programs in a folder, to be tested on the bundled kernel.
    fn of_programs(folder: &Path, library: &Path, tests: Vec<String>) -> Self {
        let target = format!("{BUNDLED_KERNEL} -k pebbles --library {}", quoted(library));
        let test_flag = format!("--program {}/", quoted(folder));
        Self { target, test_flag, description: library.to_owned(), tests, questions: 0 }
    }

    fn show(&self) {
        let Self { target, test_flag, description, tests, questions } = self;
        let description = description.display();
        let test = tests.first().map_or("TEST", String::as_str);
        println!("The description is in {description}, to be changed where this project differs.");
        if *questions > 0 {
            println!(
                "{questions} of its lines are not found in the kernel and want an answer of yours first."
            );
        }
        if tests.is_empty() {
            println!("No tests were found: a test is what is typed to the kernel.");
        } else {
            let more = tests.len().saturating_sub(TESTS_SHOWN);
            let named = tests.iter().take(TESTS_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            println!("Tests: {named}{more}");
        }
        println!("Now type:");
        println!("  rockfall doctor {target} {test_flag}{test}");
        println!("  rockfall test {target} {test_flag}{test} --budget 10m");
    }
}

/// Programs of xv6 that are no tests.
const XV6_TOOLS: [&str; 11] = ["cat", "echo", "grep", "init", "kill", "ln", "ls", "mkdir", "rm", "sh", "wc"];

/// The tests that xv6 comes with, the shortest first: the last two compute for longer than a step may without being told so.
const XV6_OWN_TESTS: [&str; 4] = ["zombie", "stressfs", "forktest", "usertests"];

/// The programs of xv6 that were built in a folder: `_forktest`.
fn xv6_programs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| Some(name.strip_prefix('_')?.to_owned()).filter(|name| !name.contains('.')))
        .collect()
}

/// The tests among the programs of xv6. Those that somebody has written come first.
fn xv6_tests(mut programs: Vec<String>) -> Vec<String> {
    programs.retain(|name| !XV6_TOOLS.contains(&name.as_str()));
    programs.sort_by_cached_key(|name| {
        (XV6_OWN_TESTS.iter().position(|own| own == name).map_or(0, |at| at + 1), name.clone())
    });
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found() {
        let programs = ["usertests", "cat", "forktest", "zombie", "init", "mine"].map(str::to_owned);
        assert_eq!(xv6_tests(programs.to_vec()), ["mine", "zombie", "forktest", "usertests"]);
    }
}

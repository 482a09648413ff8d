//! Pintos: the threads project with its own tests and ours, and those with programs, which are put on a disk.
//!
//! The disk is what the `pintos` script would make: the loader, a partition table, the kernel; for programs
//! also an empty partition for the file system and one with an archive of programs, which the kernel unpacks
//! when it boots (`-f extract`); for virtual memory an empty one to swap to.

use super::{Project, Ready};
use crate::files::{read, write_whole};
use campaign::Failure;
use campaign::narrate::quoted;
use guests::courses;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
/// Where in a boot sector of Pintos the loader's code ends, the partition table is, and the signature.
const LOADER_BYTES: usize = 314;
const PARTITIONS: usize = 446;
const SIGNATURE: usize = 510;
/// The types of the partitions with Pintos' kernel, its file system, and what is to be unpacked.
const KERNEL: u8 = 0x20;
const FILE_SYSTEM: u8 = 0x21;
const SCRATCH: u8 = 0x22;
const SWAP: u8 = 0x23;
const FILE_SYSTEM_BYTES: usize = 2 << 20;
const SWAP_BYTES: usize = 4 << 20;

/// Programs of userprog that start others or wait for them, and those that they start. (A directory of the
/// project as it is handed out has sixteen entries.)
const PROGRAMS: [&str; 12] = [
    "wait-simple",
    "wait-twice",
    "wait-killed",
    "wait-bad-pid",
    "exec-once",
    "exec-multiple",
    "exec-missing",
    "multi-recurse",
    "args-none",
    "args-single",
    "child-simple",
    "child-bad",
];
/// The last of them are no tests.
const CHILDREN: usize = 2;
/// How many files are put on the disk, so that a test has an entry left for one that it makes.
const FILES_MAX: usize = 15;

impl Project {
    pub(super) fn pintos(&self, with_tests: bool) -> Result<Ready, Failure> {
        let folder = self.root.join("tests/threads");
        let mut tests: Vec<String> = Vec::new();
        if with_tests {
            add_tests(&folder)?;
        }
        let source = String::from_utf8_lossy(&read(&folder.join("tests.c"))?).into_owned();
        if source.contains("ROCKFALL_TESTS") {
            tests.extend(courses::tests(courses::PINTOS).into_iter().map(str::to_owned));
        } else {
            println!(
                "'--tests' adds tests of ours that show more: {}.",
                courses::tests(courses::PINTOS).join(", ")
            );
        }
        tests.extend(pintos_tests(&source));
        let threads = self.root.join("threads");
        self.tools.make(&threads, &[])?;
        let build = threads.join("build");
        let disk = self.output.join("threads.dsk");
        let parts = [(KERNEL, read(&build.join("kernel.bin"))?)];
        write_whole(&disk, &disk_of(&read(&build.join("loader.bin"))?, &parts)?)?;
        let kernel = format!("{} --symbols {}", quoted(&disk), quoted(&build.join("kernel.o")));
        Ok(Ready::of_kernel(&kernel, &self.describe_kernel("pintos", &build.join("kernel.o"))?, tests))
    }

    /// `project`: the folder that is built. `put`: what is to be on the disk beside what we chose, and before it where there is not room for all.
    pub(super) fn pintos_with_programs(&self, project: &str, put: &[PathBuf]) -> Result<Ready, Failure> {
        let folder = self.root.join(project);
        self.tools.make(&folder, &[])?;
        let build = folder.join("build");
        let programs = build.join("tests/userprog");
        let mut archive = Vec::new();
        let mut there: Vec<String> = Vec::new();
        let mut tests = Vec::new();
        for wanted in put {
            let (name, file) = self.wanted(wanted, &build)?;
            if there.contains(&name) {
                continue;
            }
            if there.len() == FILES_MAX {
                return Err(Failure::BadFlag(format!("at most {FILES_MAX} files can be put on the disk")));
            }
            archive.extend(archived(&name, &file));
            if file.starts_with(b"\x7fELF") && !name.starts_with("child-") {
                tests.push(name.clone());
            }
            there.push(name);
        }
        for (at, name) in PROGRAMS.into_iter().enumerate() {
            if there.len() < FILES_MAX
                && !there.iter().any(|known| known == name)
                && let Ok(file) = std::fs::read(programs.join(name))
            {
                archive.extend(archived(name, &file));
                there.push(name.to_owned());
                if at < PROGRAMS.len() - CHILDREN {
                    tests.push(name.to_owned());
                }
            }
        }
        // Two empty sectors are the end.
        archive.extend([0; 2 * SECTOR]);
        let disk = self.output.join(format!("{project}.dsk"));
        let mut parts = vec![
            (KERNEL, read(&build.join("kernel.bin"))?),
            (FILE_SYSTEM, vec![0; FILE_SYSTEM_BYTES]),
            (SCRATCH, archive),
        ];
        if project == "vm" {
            parts.push((SWAP, vec![0; SWAP_BYTES]));
        }
        write_whole(&disk, &disk_of(&read(&build.join("loader.bin"))?, &parts)?)?;
        let kernel = format!(
            "{} --symbols {} --programs {} --append '-f extract'",
            quoted(&disk),
            quoted(&build.join("kernel.o")),
            quoted(&programs)
        );
        Ok(Ready::of_kernel(&kernel, &self.describe_kernel("pintos", &build.join("kernel.o"))?, tests))
    }

    /// A file that is to be put on the disk, by its path or by the name of one of the course's programs or of
    /// what they read; with the name that it has there.
    fn wanted(&self, wanted: &Path, build: &Path) -> Result<(String, Vec<u8>), Failure> {
        let folders = ["tests/userprog", "tests/filesys/base", "tests/filesys/extended", "tests/vm"];
        let places = [build, self.root.as_path()]
            .into_iter()
            .flat_map(|root| folders.map(|folder| root.join(folder).join(wanted)));
        let found = std::iter::once(wanted.to_owned()).chain(places).find(|path| path.is_file());
        let path = found.ok_or_else(|| {
            Failure::BadFlag(format!(
                "--put {}: there is no such file, nor a program or file of this name among the tests of {}",
                wanted.display(),
                self.root.display()
            ))
        })?;
        // A name in Pintos' file system.
        const NAME_MAX: usize = 14;
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.len() <= NAME_MAX);
        let name = name.ok_or_else(|| {
            Failure::BadFlag(format!(
                "--put {}: a name in Pintos' file system has at most {NAME_MAX} letters",
                wanted.display()
            ))
        })?;
        Ok((name.to_owned(), read(&path)?))
    }
}

/// Puts our tests among those of the project: files of their own, and lines in two of the project's files.
fn add_tests(folder: &Path) -> Result<(), Failure> {
    for (name, text) in courses::PINTOS {
        write_whole(&folder.join(name), text.as_bytes())?;
    }
    let table = folder.join("tests.c");
    let text = String::from_utf8_lossy(&read(&table)?).into_owned();
    if !text.contains("ROCKFALL_TESTS") {
        let changed = with_table(&text).ok_or_else(|| {
            Failure::BadInput(format!(
                "{}: there is no 'tests[] =' with a table of tests below '#include \"tests/threads/tests.h\"'; put \
                 '#include \"tests/threads/rockfall.h\"' and 'ROCKFALL_TESTS' into your table by hand",
                table.display()
            ))
        })?;
        write_whole(&table, changed.as_bytes())?;
    }
    let sources = folder.join("Make.tests");
    let mut text = String::from_utf8_lossy(&read(&sources)?).into_owned();
    if !text.contains("rockfall-") {
        text += "\n# Tests for Rockfall.\n";
        for test in courses::tests(courses::PINTOS) {
            text += &format!("tests/threads_SRC += tests/threads/{test}.c\n");
        }
        write_whole(&sources, text.as_bytes())?;
    }
    println!("Tests of ours are in {}, named in tests.c and Make.tests.", folder.display());
    Ok(())
}

/// The table of tests with ours at its head.
fn with_table(text: &str) -> Option<String> {
    const HEADER: &str = "#include \"tests/threads/tests.h\"";
    let table = text.find("tests[]")?;
    let brace = table + text[table..].find('{')? + 1;
    let header = text.find(HEADER).filter(|at| *at < table)? + HEADER.len();
    let (head, rest) = (&text[..header], &text[header..brace]);
    Some(format!("{head}\n#include \"tests/threads/rockfall.h\"{rest}\n    ROCKFALL_TESTS{}", &text[brace..]))
}

/// A disk with the loader and these partitions, one behind the other.
fn disk_of(loader: &[u8], partitions: &[(u8, Vec<u8>)]) -> Result<Vec<u8>, Failure> {
    let mut disk = vec![0; SECTOR];
    let code = &loader[..loader.len().min(LOADER_BYTES)];
    disk[..code.len()].copy_from_slice(code);
    disk[SIGNATURE..].copy_from_slice(&[0x55, 0xaa]);
    const BOOTABLE: u8 = 0x80;
    let large = || Failure::BadInput("the kernel and its programs are too large for a disk".to_owned());
    for (at, (kind, bytes)) in partitions.iter().enumerate() {
        let first = u32::try_from(disk.len() / SECTOR).map_err(|_| large())?;
        let count = u32::try_from(bytes.len().div_ceil(SECTOR)).map_err(|_| large())?;
        let entry = &mut disk[PARTITIONS + 16 * at..][..16];
        (entry[0], entry[4]) = (if *kind == KERNEL { BOOTABLE } else { 0 }, *kind);
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&count.to_le_bytes());
        disk.extend(bytes);
        disk.resize(disk.len().next_multiple_of(SECTOR), 0);
    }
    Ok(disk)
}

/// A file as POSIX' ustar archives have it: a sector of header, then the contents.
fn archived(name: &str, file: &[u8]) -> Vec<u8> {
    let mut header = [0; SECTOR];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", file.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend(file);
    archive.resize(archive.len().next_multiple_of(SECTOR), 0);
    archive
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

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "#include \"tests/threads/tests.h\"\n#include <debug.h>\n\nstatic const struct test tests[] = \n  {\n    \
                         {\"alarm-single\", test_alarm_single},\n    {\"mlfqs-block\", test_mlfqs_block},\n  };\n  \
                         {\"not\", a_test}\n";

    #[test]
    fn tests_are_found_and_added() {
        assert_eq!(pintos_tests(TABLE), ["alarm-single", "mlfqs-block"]);
        let changed = with_table(TABLE).expect("there is a table");
        assert!(changed.contains("tests.h\"\n#include \"tests/threads/rockfall.h\"\n#include <debug.h>"));
        assert!(changed.contains("tests[] = \n  {\n    ROCKFALL_TESTS\n    {\"alarm-single\""));
        assert_eq!(with_table("int main;"), None);
    }

    #[test]
    fn a_disk_has_loader_partitions_and_what_is_in_them() {
        let Ok(disk) = disk_of(&[7; 512], &[(KERNEL, vec![9; 700]), (SCRATCH, vec![5])]) else {
            panic!("it fits")
        };
        assert_eq!(disk.len(), 4 * SECTOR);
        assert_eq!((disk[LOADER_BYTES - 1], disk[LOADER_BYTES]), (7, 0));
        assert_eq!(
            disk[PARTITIONS..SIGNATURE + 2][..32],
            [
                0x80, 0, 0, 0, 0x20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, //
                0, 0, 0, 0, 0x22, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0
            ]
        );
        assert_eq!(disk[SIGNATURE..SECTOR], [0x55, 0xaa]);
        assert_eq!((disk[SECTOR], disk[SECTOR + 699], disk[SECTOR + 700]), (9, 9, 0));
        assert_eq!(disk[3 * SECTOR], 5);
    }

    /// As `tar` reads it: name, size, and the sum of the header's bytes with blanks for the sum.
    #[test]
    fn an_archive_has_a_header_and_the_file() {
        let archive = archived("child-simple", &[3; 600]);
        assert_eq!(archive.len(), 3 * SECTOR);
        assert!(archive.starts_with(b"child-simple\0"));
        assert_eq!(&archive[124..136], b"00000001130\0");
        let mut blank = archive[..SECTOR].to_vec();
        blank[148..156].fill(b' ');
        let sum: u32 = blank.iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(&archive[148..156], format!("{sum:06o}\0 ").as_bytes());
        assert_eq!((archive[SECTOR], archive[SECTOR + 599], archive[SECTOR + 600]), (3, 3, 0));
    }
}

//! `rockfall new` on folders that look like those of courses: what is built, written and said; and a kernel
//! that is older than its sources is noticed.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn write(folder: &Path, name: &str, text: &[u8]) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// Exit code and all that was said.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = command.args(arguments).current_dir(folder).output().expect("the command starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn a_folder_of_pintos() {
    let folder = folder("pintos");
    let rule =
        b"all:\n\tmkdir -p build\n\tprintf loader > build/loader.bin\n\tprintf kernel > build/kernel.bin\n\t\
                 printf 'int x;' > build/x.c\n\t$(CC) -m32 -c build/x.c -o build/kernel.o\n";
    write(&folder, "src/threads/Makefile", rule);
    write(&folder, "src/tests/threads/tests.c", b"    {\"alarm-single\", test_alarm_single},\n");
    let (code, text) = rockfall(&folder, &["new", "pintos", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Tests: alarm-single"), "{text}");
    assert!(text.contains("  rockfall test ") && text.contains("threads.dsk --symbols "), "{text}");
    let disk = std::fs::read(folder.join("rockfall/threads.dsk")).expect("written");
    assert!(disk.starts_with(b"loader") && disk[512..].starts_with(b"kernel"));
    assert!(folder.join("rockfall/pintos.toml").exists());
    // What was built is no Pintos.
    assert!(text.contains("The description is not made for this kernel.") && text.contains("rockfall init "));
    assert!(text.contains("'--tests' adds tests of ours that show more: rockfall-sema"), "{text}");
    let (code, text) = rockfall(&folder, &["new", "pintos", ".", "--tests"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("put '#include \"tests/threads/rockfall.h\"' and 'ROCKFALL_TESTS'"), "{text}");
    let table = b"#include \"tests/threads/tests.h\"\nstatic const struct test tests[] =\n  {\n    \
                  {\"alarm-single\", test_alarm_single},\n  };\n";
    write(&folder, "src/tests/threads/tests.c", table);
    write(&folder, "src/tests/threads/Make.tests", b"tests/threads_SRC = tests/threads/tests.c\n");
    for _ in 0..2 {
        let (code, text) = rockfall(&folder, &["new", "pintos", ".", "--tests"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("Tests: rockfall-sema, rockfall-alarm, rockfall-donate, alarm-single\n"),
            "{text}"
        );
        let read =
            |name: &str| std::fs::read_to_string(folder.join("src/tests/threads").join(name)).expect("there");
        assert_eq!(read("tests.c").matches("ROCKFALL_TESTS").count(), 1);
        assert_eq!(read("Make.tests").matches("rockfall-donate.c").count(), 1);
        assert!(read("rockfall-donate.c").contains("test_rockfall_donate"));
    }
    write(&folder, "src/threads/Makefile", b"all:\n\t@echo no such register; false\n");
    let (code, text) = rockfall(&folder, &["new", "pintos", "."]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no such register") && text.contains("fails:"), "{text}");
    let (code, text) = rockfall(&folder, &["new", "xv6", "."]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("there is no kernel.ld"), "{text}");
}

/// A kernel that comes to nothing at its first instruction was mostly built by another compiler than its makefile is for.
#[test]
fn a_kernel_that_dies_at_once() {
    let folder = folder("dies");
    let source = "__asm__(\".section .multiboot, \\\"a\\\"\\n.long 0x1badb002, 0, -0x1badb002\\n.text\\n\"
                  \".globl start\\nstart: lidt nothing\\n int3\\n.data\\nnothing: .word 0\\n.long 0\\n\");\n";
    write(&folder, "dies.c", source.as_bytes());
    write(&folder, "k.toml", b"name = \"dies\"\nannotations = true\n[test]\ninput = \"none\"\n");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/tiny/tiny.ld");
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-g", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-o", "kernel", "dies.c", "-T"]);
    assert!(gcc.arg(script).current_dir(&folder).status().expect("gcc starts").success());
    let (code, text) = rockfall(&folder, &["doctor", "kernel", "-k", "k.toml"]);
    assert_eq!(code, Some(2), "{text}");
    for word in ["triple fault", "--memory", "-fcf-protection=none"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // From a disk whose boot sector ends all: the kernel's data would be loaded to where there is no memory.
    write(
        &folder,
        "far.ld",
        b"SECTIONS { .text 0x100000 : { *(.text) } .data 0x200000 : AT(0x90000000) { *(.data) } }\n",
    );
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-m32",
        "-nostdlib",
        "-static",
        "-fno-pie",
        "-no-pie",
        "-o",
        "far",
        "dies.c",
        "-T",
        "far.ld",
        "-Wl,-e,start",
    ]);
    assert!(gcc.current_dir(&folder).status().expect("gcc starts").success());
    let mut sector = [0; 512];
    // cli; lidt [0x7c40], where there are zeros; int3
    sector[..7].copy_from_slice(&[0xfa, 0x0f, 0x01, 0x1e, 0x40, 0x7c, 0xcc]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    write(&folder, "disk", &sector);
    let (code, text) = rockfall(&folder, &["doctor", "disk", "--symbols", "far", "-k", "k.toml"]);
    assert_eq!(code, Some(2), "{text}");
    for word in ["triple fault", "0x90000000", "kernel.ld"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_folder_of_xv6() {
    let folder = folder("xv6");
    write(&folder, "kernel.ld", b"");
    let programs = "\ttouch _init _forktest _sh _forktest.o\n";
    let makefile = format!("kernelmemfs:\n\tprintf k > kernelmemfs\n{programs}");
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Tests: forktest\n") && text.contains("kernelmemfs --programs "), "{text}");
    // Without a kernel that has its file system in memory there are disks.
    let makefile =
        format!("kernel:\n\tprintf k > kernel\n{programs}xv6.img fs.img: kernel\n\tcp kernel $@\n");
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
    assert_eq!(code, Some(0), "{text}");
    let named = ["/xv6.img --symbols ", "/kernel --disk ", "/fs.img --programs "];
    assert!(text.contains("Tests: forktest\n") && named.iter().all(|name| text.contains(name)), "{text}");
    assert!(folder.join("made/xv6.toml").exists() && folder.join("made/tools/gcc").exists());
    // Nor is a kernel with its file system in memory needed where it cannot be built.
    std::fs::remove_file(folder.join("kernelmemfs")).expect("it was there");
    write(&folder, "Makefile", format!("kernelmemfs:\n\tfalse\n{makefile}").as_bytes());
    let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("/xv6.img --symbols ") && !text.contains("kernelmemfs"), "{text}");
    // Nor one that does not fit into what xv6 has mapped when it begins.
    for (file_system, taken) in [("0x1000", "/kernelmemfs --programs "), ("0x500000", "/xv6.img --symbols ")]
    {
        let ld = format!(
            "ld -m elf_i386 -Ttext 0x80100000 --defsym=end=0x80100000+{file_system} -e 0 -o $@ empty.o"
        );
        let rule = format!("kernelmemfs: empty.c\n\tgcc -m32 -c empty.c -o empty.o\n\t{ld}\n");
        write(&folder, "empty.c", b"int nothing = 1;\n");
        _ = std::fs::remove_file(folder.join("kernelmemfs"));
        write(&folder, "Makefile", (rule + &makefile).as_bytes());
        let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
        assert!(code == Some(0) && text.contains(taken), "{file_system}: {text}");
    }
}

/// Linker scripts of older courses put a byte into sections of stabs, behind which today's linker forgets where data are
/// loaded; and what debugging information takes does not fit into a file of xv6.
#[test]
fn an_older_folder_of_xv6() {
    let folder = folder("older-xv6");
    let script = "SECTIONS {\n. = 0x80100000;\n.text : AT(0x100000) { *(.text) }\n\
                  .stab : {\nPROVIDE(stabs = .);\n*(.stab);\nBYTE(0)\n}\n\
                  .data : { *(.data) BYTE(0) }\n/DISCARD/ : { *(.eh_frame) }\n}\n";
    write(&folder, "kernel.ld", script.as_bytes());
    write(&folder, "kernel.c", b"int data = 1;\nvoid _start(void) { data++; }\n");
    // As mkfs has it: a file has 140 blocks at most.
    let makefile = "kernel: kernel.c kernel.ld\n\tgcc -c kernel.c -o kernel.o\n\
                    \tld -m elf_i386 -T kernel.ld -o kernel kernel.o\n\
                    _mine: kernel.c\n\tgcc -nostdlib -static -o $@ kernel.c\n\
                    xv6.img: kernel\n\tcp kernel $@\n\
                    fs.img: _mine\n\t@! readelf -SW _mine | grep -q debug_info || { echo 'fbn < MAXFILE'; false; }\n\
                    \tcp _mine $@\n";
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Tests: mine\n") && text.contains("/made/programs "), "{text}");
    let shown = |arguments: &[&str]| {
        let output = Command::new("readelf").args(arguments).current_dir(&folder).output().expect("readelf");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(shown(&["-SW", "made/programs/_mine"]).contains("debug_info"));
    assert!(!shown(&["-SW", "_mine"]).contains("debug_info"));
    let loads = shown(&["-lW", "kernel"]);
    let loads: Vec<&str> = loads.lines().filter(|line| line.trim_start().starts_with("LOAD")).collect();
    assert!(!loads.is_empty() && loads.iter().all(|line| line.contains(" 0x0010")), "{loads:?}");
    // Its own file is as it was, and a build without these tools is told what is wrong.
    assert_eq!(std::fs::read_to_string(folder.join("kernel.ld")).expect("there"), script);
    let mut ld = Command::new("ld");
    ld.args(["-m", "elf_i386", "-T", "kernel.ld", "-o", "far", "kernel.o"]);
    assert!(ld.current_dir(&folder).status().expect("ld starts").success());
    write(&folder, "k.toml", b"name = \"far\"\nannotations = true\n[test]\ninput = \"none\"\n");
    let (code, text) = rockfall(&folder, &["doctor", "far", "-k", "k.toml"]);
    assert_eq!(code, Some(2), "{text}");
    for word in ["needs memory 0x80", "readelf -l", "rockfall new"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// A thread library in the layout of its course: ours, whose headers have the course's names.
#[test]
fn a_folder_of_p2() {
    let folder = folder("p2");
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests").canonicalize().expect("there");
    let guests = guests.display();
    let types = "#pragma once\n";
    for (name, text) in [
        ("thread.h", format!("#include \"{guests}/threadlib/thr.h\"\n")),
        ("mutex.h", format!("#include \"{guests}/threadlib/mutex.h\"\ntypedef struct mutex mutex_t;\n")),
        ("cond.h", format!("#include \"{guests}/threadlib/cond.h\"\ntypedef struct cond cond_t;\n")),
        ("sem.h", format!("#include \"{guests}/threadlib/sem.h\"\ntypedef struct sem sem_t;\n")),
        ("syscall.h", format!("#include \"{guests}/runtime/syscall.h\"\n")),
        ("assert.h", format!("#include \"{guests}/runtime/stdio.h\"\n")),
    ] {
        write(&folder, &format!("user/libthread/{name}"), (types.to_owned() + &text).as_bytes());
    }
    write(&folder, "config.mk", b"STUDENTTESTS = own \\\n  broken\n410TESTS =\n");
    // A library may allocate before the program's first function runs.
    let own = "#include <thread.h>\nvoid *malloc(unsigned long);\nvoid free(void *);\nvoid *block;\n\
               __asm__(\".globl early\\nearly: pushl $8\\n call malloc\\n addl $4, %esp\\n movl %eax, block\\n jmp _start\");\n\
               static void *nothing(void *arg) { return arg; }\n\
               int main(void) { thr_init(4096); thr_join(thr_create(nothing, 0), 0); free(block); return 0; }\n";
    write(&folder, "user/progs/own.c", own.as_bytes());
    write(&folder, "user/progs/broken.c", b"int main(void) { return nowhere(); }\n");
    let makefile = format!(
        "include config.mk\nG = {guests}\n\
         LIB = $(wildcard $(G)/threadlib/*.c $(G)/threadlib/*.S $(G)/runtime/*.c $(G)/runtime/*.S $(G)/lib/*.c)\n\
         FLAGS = -gstabs -O1 -ffreestanding -mgeneral-regs-only\n\
         OBJS = $(notdir $(patsubst %,%.o,$(LIB)))\n\
         VPATH = $(G)/threadlib:$(G)/runtime:$(G)/lib\n\
         %.o: %\n\tgcc $(FLAGS) -c -o $@ $<\n\
         user/progs/%.o: user/progs/%.c\n\tgcc $(FLAGS) -Iuser/libthread -c -o $@ $<\n\
         $(STUDENTTESTS:%=temp/%): temp/%: user/progs/%.o $(OBJS)\n\tmkdir -p temp\n\
         \tgcc -nostdlib -static -Wl,--build-id=none,-z,max-page-size=4096 -T $(G)/runtime/program.ld -o $@ $< $(OBJS)\n"
    );
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "p2", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Not built: broken, rf_rwlock"), "{text}");
    assert!(text.contains("Tests: rf_mutex, rf_signal, "), "{text}");
    let line = text.lines().find(|line| line.contains("rockfall test bundled")).expect("a line to type");
    let line = line.trim().replace("rf_mutex", "rf_exit_join").replace("10m", "10s");
    let (code, text) = rockfall(&folder, &line.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{line}: {text}");
    assert!(text.contains("exhausted"), "{text}");
    // Linkers put the file's headers into a page of their own below the code, which a kernel need not load.
    let makefile = makefile.replace("-T $(G)/runtime/program.ld", "-Wl,-Ttext=0x1000000,-e,$(ENTRY)");
    let makefile = format!("ENTRY = _start\ntemp/own: ENTRY = early\n{makefile}");
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "p2", "."]);
    assert_eq!(code, Some(0), "{text}");
    let headers = Command::new("readelf").args(["-lW", "temp/rf_exit_join"]).current_dir(&folder).output();
    let headers = String::from_utf8_lossy(&headers.expect("readelf").stdout).into_owned();
    assert!(headers.contains("0x00fff000"), "{headers}");
    let (code, text) = rockfall(&folder, &line.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{line}: {text}");
    let line = line.replace("rf_exit_join", "own");
    let (code, text) = rockfall(&folder, &line.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{line}: {text}");
}

/// A kernel in the layout of its course: ours in one file.
#[test]
fn a_folder_of_p3() {
    let folder = folder("p3");
    let guests =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/tiny").canonicalize().expect("there");
    let tiny = guests.display();
    write(&folder, "config.mk", b"410TESTS = wait_getpid\nSTUDENTTESTS = own\n");
    write(&folder, "kern/kernel.mk", b"");
    let makefile = format!(
        "kernel:\n\tgcc -gstabs -Werror -std=gnu11 -ffreestanding -O1 -mgeneral-regs-only -nostdlib -static -DROCKFALL_OFF \
         -T {tiny}/tiny.ld {tiny}/tiny.c -o kernel\n"
    );
    write(&folder, "Makefile", makefile.as_bytes());
    let (code, text) = rockfall(&folder, &["new", "p3", "."]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Tests: own, wait_getpid\n"), "{text}");
    assert!(text.contains("want an answer of yours first"), "{text}");
    let draft = std::fs::read_to_string(folder.join("rockfall/p3.toml")).expect("written");
    assert!(draft.contains("current = \"current\""), "{draft}");
}

/// The course's shell says of a program that the kernel has killed what `new p3` makes a finding: our kernel
/// with a shell of those words, and a program that is killed.
#[test]
fn a_program_that_the_kernel_kills_is_a_finding() {
    let folder = folder("killed");
    let shell = include_str!("../../../guests/programs/shell.c");
    let shell = shell.replace("\"../", &format!("\"{}/", guests::sources().display()));
    let sources = [
        ("says", shell.replace(": status %d", ": exit status %d")),
        ("killed", "int main(void) { *(volatile int *)0 = 1; return 0; }\n".to_owned()),
        ("lives", "int main(void) { return 0; }\n".to_owned()),
    ];
    assert!(sources[0].1.contains(": exit status %d"), "the shell says it in other words");
    let programs: Vec<guests::Program> =
        sources.map(|(name, source)| guests::Program { name: name.to_owned(), source }).into_iter().collect();
    let build = guests::Build::default();
    let image = build.image_with(&programs, &folder.join("first")).unwrap_or_else(|error| panic!("{error}"));
    let own = ["shell", "killed", "lives"].map(|name| folder.join(name).with_extension("elf"));
    for (name, path) in ["says", "killed", "lives"].iter().zip(&own) {
        std::fs::copy(image.programs.join(name), path).expect("copied");
    }
    let temp = folder.join("made");
    build.image_of(guests::Size::default(), &own, &temp).unwrap_or_else(|error| panic!("{error}"));

    write(&folder, "config.mk", b"410TESTS =\nSTUDENTTESTS = killed lives\n");
    write(&folder, "kern/kernel.mk", b"");
    write(&folder, "Makefile", b"kernel:\n\tcp made/kernel kernel && cp -r made/programs temp\n");
    let (code, text) = rockfall(&folder, &["new", "p3", "."]);
    assert_eq!(code, Some(0), "{text}");
    for (test, found) in [("killed", true), ("lives", false)] {
        let target = ["test", "kernel", "--programs", "temp", "-k", "rockfall/p3.toml", "-t", test];
        let (code, text) = rockfall(&folder, &[&target[..], &["--budget", "5s", "--fresh"]].concat());
        assert_eq!(code == Some(1), found, "{test}: {text}");
        assert_eq!(text.contains("killed: exit status -2"), found, "{test}: {text}");
    }
}

#[test]
fn a_kernel_that_is_older_than_its_sources() {
    let folder = folder("older");
    let source = "void _start(void) { for (;;) continue; }\n";
    write(&folder, "old.c", source.as_bytes());
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-g", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-o", "kernel", "old.c"]);
    assert!(gcc.current_dir(&folder).status().expect("a compiler").success());
    write(
        &folder,
        "k.toml",
        b"name = \"old\"\nannotations = true\n[test]\nready = [{ on = \"enter _start\" }]\n",
    );
    let run = || rockfall(&folder, &["explore", "kernel", "-k", "k.toml", "-t", "x", "--budget", "1s"]).1;
    assert!(!run().contains("was changed after"), "{}", run());
    let built =
        std::fs::metadata(folder.join("kernel")).and_then(|kernel| kernel.modified()).expect("a time");
    let changed = std::fs::File::options().append(true).open(folder.join("old.c")).expect("the source");
    changed.set_modified(built + std::time::Duration::from_secs(1)).expect("a later time");
    assert!(run().contains("old.c was changed after kernel was built"), "{}", run());
}

//! Models against the machine: what Spin reaches is what the explorer reaches, and what Spin finds the kernel shows.

mod ends;

use ends::{Ends, Told, ends};
use expect_test::{Expect, expect};
use explore::World;
use explore::strategies::Dpor;
use guest::description::Description;
use guest::image::Image;
use guest::kernel::Kernel;
use guest::lifecycle::{self, Setup};
use guest::uniprocessor::Uniprocessor;
use guests::Build;
use promela::check::{Check, LockFunctions, Process, Source};
use promela::model::Line;
use promela::spin::{Spin, Verdict};
use promela::{extract, source};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use trace::{Action, CpuId, PointSet, Step, StepEnd, VirtAddr};

const KERNEL: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("models").join(name)
}

// ---- Random programs ----

/// Programs that are compared; each takes a compilation of Spin's verifier.
const PROGRAMS: u64 = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn name(&mut self) -> &'static str {
        ["x", "y", "z"][self.below(3) as usize]
    }
}

/// One statement, or a few with a lock around them. Each makes three shared accesses at most.
fn statement(random: &mut Random, locked: bool) -> String {
    let (a, b, number) = (random.name(), random.name(), random.below(3) + 1);
    match random.below(if locked { 6 } else { 8 }) {
        0 => format!("{a} = {number};"),
        1 => format!("{a} = {b};"),
        2 => format!("{a} = {b} + {number};"),
        3 => format!("if ({a} == {number}) {b} = 0; else {b}++;"),
        4 => format!("local = {a}; {b} = local + {number};"),
        5 => format!("{a}++;"),
        6 => format!("mutex_lock(&m); {} mutex_unlock(&m);", statement(random, true)),
        _ => format!("for (local = 0; local < 2; local++) {a} += local;"),
    }
}

fn program(seed: u64) -> String {
    let mut random = Random(seed);
    let mut text = String::from(
        "/* Made by chance. */\n#include \"../runtime/spawn.h\"\n#include \"../runtime/syscall.h\"\n\
         #include \"../threadlib/mutex.h\"\n\nvolatile int x, y, z;\nstruct mutex m = MUTEX_INIT;\n\
         static struct spawn_stack stack;\n\n",
    );
    for name in ["first", "second"] {
        let count = 2 + random.below(2);
        let body: Vec<String> = (0..count).map(|_| statement(&mut random, false)).collect();
        let _ = writeln!(
            text,
            "void {name}(void)\n{{\n    int local = 0;\n    {}\n    (void)local;\n}}\n",
            body.join("\n    ")
        );
    }
    text + "static void other(void)\n{\n    second();\n    vanish();\n}\n\nint main(void)\n{\n    SPAWN(stack, other);\n    \
            first();\n    vanish();\n}\n"
}

/// The guests with the generated programs among them.
fn guests_with(programs: &[(String, String)]) -> PathBuf {
    let root = folder("guests");
    let _ = std::fs::remove_dir_all(&root);
    for part in ["lib", "pebbles", "runtime", "threadlib", "programs"] {
        std::fs::create_dir_all(root.join(part)).unwrap();
        for entry in std::fs::read_dir(guests::sources().join(part)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_owned();
            let needed = part != "programs" || ["init.c", "shell.c"].contains(&name.to_str().unwrap());
            if path.is_file() && needed {
                std::fs::copy(&path, root.join(part).join(name)).unwrap();
            }
        }
    }
    for (name, text) in programs {
        std::fs::write(root.join("programs").join(format!("{name}.c")), text).unwrap();
    }
    root
}

fn values(guest: &Uniprocessor, image: &Image) -> String {
    let mut text = String::from("END");
    for name in ["x", "y", "z"] {
        let mut bytes = [0; 4];
        let at = VirtAddr(image.data_range(name).expect("a variable").start);
        assert!(guest.machine.read_virt(CpuId(0), at, &mut bytes), "the program's memory is still there");
        let _ = write!(text, " {}", i32::from_le_bytes(bytes));
    }
    text
}

fn in_words(step: &Step) -> String {
    match (&step.end, step.events.last().map(|event| &event.action)) {
        (StepEnd::Finished, Some(Action::Console { line })) => line.clone(),
        (end, last) => format!("{end:?} {last:?}"),
    }
}

fn world(built: &guests::Image, program: &str) -> World<Told, Ends> {
    let file = std::fs::read(&built.kernel).expect("just built");
    let kernel = Description::parse("pebbles.toml", KERNEL).expect("it is bundled");
    let kernel =
        Kernel::resolve(&kernel, &Image::parse("kernel", &file).expect("an ELF file")).expect("it fits");
    let bytes = std::fs::read(built.programs.join(program)).expect("just built");
    let image = Image::parse(program, &bytes).expect("an ELF file");
    let library = Description::parse("pebbles-threads.toml", LIBRARY).expect("it is bundled");
    let kernel = kernel.with_program(&library, &image, program).expect("it fits");
    let setup = Setup { test: program.to_owned(), programs: vec![image.clone()], ..Setup::default() };
    let started = lifecycle::start(&kernel, &file, &setup).expect("the program starts");
    let says =
        move |guest: &Uniprocessor, end: &StepEnd| (*end == StepEnd::Finished).then(|| values(guest, &image));
    ends::world(started.subject, Arc::new(says), in_words)
}

/// All final values that Spin reaches.
fn by_spin(root: &Path, name: &str) -> BTreeSet<String> {
    let process =
        |name: &str| Process { name: format!("p_{name}"), function: name.to_owned(), ..Process::default() };
    let check = Check {
        name: name.to_owned(),
        source: Source {
            files: vec![format!("programs/{name}.c")],
            flags: ["-m32", "-std=gnu11", "-ffreestanding"].map(str::to_owned).to_vec(),
            ..Source::default()
        },
        functions: vec!["first".to_owned(), "second".to_owned()],
        processes: vec![process("first"), process("second")],
        locks: vec![LockFunctions {
            lock: "mutex_lock".to_owned(),
            unlock: "mutex_unlock".to_owned(),
            ..LockFunctions::default()
        }],
        ..Check::default()
    };
    let unit = source::read(&check.source, root, &|_| true).unwrap();
    let mut model = extract(&check, &unit).unwrap();
    assert_eq!(model.gaps, [], "{name}");
    // Whoever watches prints what is left, once for each state in which both have ended.
    let begin = model.lines.iter().position(|line| line.text == "init {").unwrap();
    let all = "printf(\"END %d %d %d\\n\", X, Y, Z)"
        .replace('X', if model.variables.contains_key("x") { "now.x" } else { "0" })
        .replace('Y', if model.variables.contains_key("y") { "now.y" } else { "0" })
        .replace('Z', if model.variables.contains_key("z") { "now.z" } else { "0" });
    let text = format!("active proctype watch() {{ (finished == 2) -> c_code {{ {all}; }} }}");
    model.lines.insert(begin, Line { text, indent: 0, origin: None });
    let folder = folder(name);
    let outcome = Spin { folder: &folder, check: &check, model: &model }.run(&|_| true).unwrap();
    assert_eq!(outcome.verdict, Verdict::Exhausted, "{name}");
    outcome.printed.into_iter().filter(|line| line.starts_with("END")).collect()
}

#[test]
fn spin_ends_where_the_machine_ends() {
    let programs: Vec<(String, String)> =
        (0..PROGRAMS).map(|seed| (format!("chance{seed}"), program(seed))).collect();
    let root = guests_with(&programs);
    let built = Build::default().image_from(&root, &folder("cache"), &folder("built")).expect("it builds");
    let points: PointSet =
        "everywhere,lock,within:first,within:second,without:mutex_lock,without:mutex_unlock".parse().unwrap();
    let mut most = 0;
    for (name, text) in &programs {
        let modelled = by_spin(&root, name);
        let (executed, interleavings) = ends(&world(&built, name), &points, Dpor::default());
        println!("{name}: {} ends, {interleavings} interleavings", executed.len());
        assert_eq!(modelled, executed, "{name}\n{text}");
        most = most.max(executed.len());
    }
    assert!(most > 3, "programs that can end in but one way compare nothing");
}

// ---- Case studies, each by one command ----

/// What a command prints, without what differs from run to run.
fn model(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = folder("commands");
    std::fs::create_dir_all(&folder).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
        .current_dir(&folder)
        .arg("model")
        .args(arguments)
        .output()
        .expect("it runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

fn case(name: &str) -> String {
    guests::sources().join("models").join(format!("{name}.toml")).display().to_string()
}

/// Addresses are others with every change of the kernel.
fn masked(line: &str) -> String {
    let word = |word: &str| {
        if word.starts_with("0x") && word.len() > 5 { "0xN".to_owned() } else { word.to_owned() }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The lines that say what came of it.
#[track_caller]
fn check(arguments: &[&str], status: i32, expected: Expect) {
    let (code, text) = model(arguments);
    let wanted =
        ["Model of", "Spin:", "Counterexample:", "On the", "Refined:", "  proposed:", "The patch", "    Jan"];
    let kept: Vec<String> =
        text.lines().filter(|line| wanted.iter().any(|begin| line.starts_with(begin))).map(masked).collect();
    let told = kept.join("\n").replace(&guests::sources().display().to_string(), "GUESTS");
    let told = told.replace(&folder("models").display().to_string(), "FOLDER");
    expected.assert_eq(&told);
    assert_eq!(code, Some(status), "{text}");
}

/// The listing stands at an entry that is removed: what follows the entry is not listed.
#[test]
fn a_listing_that_does_not_count() {
    check(
        &[&case("readdir_remove"), "-o", "readdir_remove.finding.json"],
        1,
        expect![[r#"
            Model of fs_readdir, fs_remove_in, entry_find, entry_put, entry_unlink: 172 lines for 2 processes; 38 statements translated by themselves, 3 by rules.
            Spin: the model violates its property: !(entry[de].freed) does not hold.
            Counterexample: 107 steps of the model, 81 of C lines, 2 context switches.
            On the kernel: violated along the counterexample: use after free: t3 read 1 byte at 0xN in the block of 48 bytes at 0xN after t4 had freed it
                Jan Feb"#]],
    );
}

/// The model alone shows a race that the callers' mutex excludes.
#[test]
fn a_race_that_callers_exclude() {
    let copy = folder("models");
    std::fs::create_dir_all(&copy).unwrap();
    let path = copy.join("readdir_rmdir.toml");
    let text = std::fs::read_to_string(case("readdir_rmdir")).unwrap();
    let fs = guests::sources().join("pebbles/fs.c").display().to_string();
    std::fs::write(&path, text.replace("../pebbles/fs.c", &fs)).unwrap();
    check(
        &[path.to_str().unwrap(), "--refine"],
        0,
        expect![[r#"
            Model of dir_list, dir_remove, entry_find, entry_unlink: 129 lines for 2 processes; 20 statements translated by themselves, 1 by rules.
            Spin: the model violates its property: !(entry[de].freed) does not hold.
            Counterexample: 74 steps of the model, 58 of C lines, 3 context switches.
            On the kernel: never reached: step 1 (remover, GUESTS/pebbles/fs.c:198), because no thread comes to the beginning of 'remover'
              proposed: 'dir_remove' is only called with closed_root.mutex held, taken in vfs_rmdir (fs.c:219), and 'dir_list' with the same, taken in vfs_readdir (fs.c:227): add it to the model
            Refined: 'dir_remove' is only called with closed_root.mutex held, taken in vfs_rmdir (fs.c:219), and 'dir_list' with the same, taken in vfs_readdir (fs.c:227): add it to the model. The refined check is in FOLDER/readdir_rmdir.refined.toml.
            Model of dir_list, dir_remove, entry_find, entry_unlink: 134 lines for 2 processes; 20 statements translated by themselves, 1 by rules.
            Spin: the model is correct: all 201 states were visited."#]],
    );
    let refined = std::fs::read_to_string(path.with_extension("refined.toml")).unwrap();
    assert!(refined.contains("taken-in = \"vfs_rmdir\""), "{refined}");
}

/// Two removals, of a directory and of what is in it, follow a null pointer.
#[test]
fn two_removals() {
    check(
        &[&case("remove_remove"), "-o", "remove_remove.finding.json"],
        1,
        expect![[r#"
        Model of fs_remove_in, entry_find, entry_put, entry_unlink: 293 lines for 2 processes; 31 statements translated by themselves, 2 by rules.
        Spin: the model violates its property: an index is beyond its array, as a null pointer's is.
        Counterexample: 102 steps of the model, 83 of C lines, 5 context switches.
        On the kernel: violated along the counterexample: panic in t3: fault 14 in the kernel at 0xN error 0, address 0x4"#]],
    );
}

/// The patch that counts mends the listing.
#[test]
fn a_patch_that_counts() {
    let patch = guests::sources().join("models/count.diff").display().to_string();
    check(
        &[&case("readdir_remove"), "--patch", &patch, "-o", "patched.finding.json"],
        0,
        expect![[r#"
            Model of fs_readdir, fs_remove_in, entry_find, entry_put, entry_unlink: 172 lines for 2 processes; 38 statements translated by themselves, 3 by rules.
            Spin: the model violates its property: !(entry[de].freed) does not hold.
            Counterexample: 107 steps of the model, 81 of C lines, 2 context switches.
            On the kernel: violated along the counterexample: use after free: t3 read 1 byte at 0xN in the block of 48 bytes at 0xN after t4 had freed it
                Jan Feb
            Spin: the model is correct: all 1,721 states were visited.
            On the patched kernel: never reached: step 15 (remover, ../pebbles/fs.c:127), because the thread of 'remover' cannot go on
            The patch mends it: the model is clean, and the old counterexample no longer goes wrong."#]],
    );
}

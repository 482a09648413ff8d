//! Models against the machine: what Spin reaches is what the explorer reaches, and what Spin finds the kernel
//! shows.

mod ends;

use ends::{Ending, Ends, ends};
use expect_test::{Expect, expect};
use explore::World;
use explore::strategies::Dpor;
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
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
fn guests_with(programs: &[(String, String)], name: &str) -> PathBuf {
    let root = folder(name).join("guests");
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

fn world(built: &guests::Image, program: &str) -> World<Ending, Ends> {
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
    let root = guests_with(&programs, "chance");
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
    let output = kept.join("\n").replace(&guests::sources().display().to_string(), "GUESTS");
    let output = output.replace(&folder("models").display().to_string(), "FOLDER");
    expected.assert_eq(&output);
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
            On the kernel: never reached: step 45 (lister, GUESTS/pebbles/fs.c:192), because no thread comes to the beginning of 'lister'
              proposed: 'dir_list' is only called with closed_root.mutex held, taken in vfs_readdir (fs.c:227), and 'dir_remove' with the same, taken in vfs_rmdir (fs.c:219): add it to the model
            Refined: 'dir_list' is only called with closed_root.mutex held, taken in vfs_readdir (fs.c:227), and 'dir_remove' with the same, taken in vfs_rmdir (fs.c:219): add it to the model. The refined check is in FOLDER/readdir_rmdir.refined.toml.
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
            On the patched kernel: never reached: step 15 (remover, ../pebbles/fs.c:127), because the thread of 'remover' has ended without coming there
            The patch mends it: the model is clean, and the old counterexample no longer goes wrong."#]],
    );
}

/// A property that only the model has: every step is done, nothing goes wrong on the kernel, and both are
/// shown side by side.
#[test]
fn what_only_the_model_forbids() {
    let text = std::fs::read_to_string(case("readdir_remove")).unwrap();
    let pairs = "[[kernel.compare]]\nmodel = 'entry[1].count'\nkernel = 'open_root.subdir->count'\n\
                 [[kernel.compare]]\nmodel = 'entry[0].subdir'\nkernel = 'open_root.subdir != 0'\n";
    let text = text
        .replace("define = [\"FAULT_FS_UNCOUNTED\"]\n", "")
        .replace("faults = [\"fs_uncounted\"]\n", pairs)
        .replace("finally = \"listed[1] && listed[3] && listed[4]\"", "finally = \"listed[2]\"");
    let path = written("only_model", &text);
    let page = folder("only_model.html");
    let (code, text) = model(&[path.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let shown: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("On the kernel")).collect();
    expect![[r#"
        On the kernel: replayed to the last step, and not violated
          entry[1].count = 0 in the model, open_root.subdir->count = 0 in the kernel
          entry[0].subdir = 1 in the model, open_root.subdir != 0 = 1 in the kernel
          the test printed:
            Jan Mar Apr"#]]
    .assert_eq(&shown.join("\n"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("in the model<th>") && page.contains("open_root.subdir-&gt;count"), "{page}");
}

/// A check file of a test, whose source is the bundled kernel's.
fn written(name: &str, text: &str) -> PathBuf {
    std::fs::create_dir_all(folder("models")).unwrap();
    let path = folder("models").join(format!("{name}.toml"));
    let sources = guests::sources().display().to_string();
    std::fs::write(&path, text.replace("../pebbles", &format!("{sources}/pebbles"))).unwrap();
    path
}

/// Listing waits for what removing never says: the counterexample goes round for ever, and so does the
/// kernel.
#[test]
fn a_round_of_a_loop_without_an_end() {
    let root = guests_with(&[], "looping");
    let program = "programs/readdir_rmdir.c";
    std::fs::copy(guests::sources().join(program), root.join(program)).unwrap();
    let path = root.join("pebbles/fs.c");
    let text = std::fs::read_to_string(&path).unwrap();
    let (list, remove) = (
        "    for (struct entry *de = dir->subdir; de; de = de->next)\n        listing_add(out, de->name);\n}\n\nint dir_remove(",
        "    free(de);\n    return 0;\n}\n\nint vfs_mkdir",
    );
    assert!(text.contains(list) && text.contains(remove));
    let text = text
        .replace(list, &format!("    while (*(volatile unsigned *)&dir->count)\n        ;\n{list}"))
        .replace(remove, &remove.replace("    free(de);\n", "    dir->count = 1;\n    free(de);\n"));
    std::fs::write(&path, text).unwrap();
    let built = Build::default()
        .image_from(&root, &folder("looping-cache"), &folder("looping-built"))
        .expect("it builds");
    let check = std::fs::read_to_string(case("readdir_rmdir")).unwrap();
    let check = check.replace("../pebbles", &root.join("pebbles").display().to_string())
        .replace("image = \"bundled\"", &format!("image = \"{}\"", built.kernel.display()))
        .replace("[[process]]\nname = \"lister\"", "[[rule]]\nc = \"*(volatile unsigned *)&dir->count\"\npromela = \"entry[dir].count\"\n\n[[process]]\nname = \"lister\"\nholds = [{ lock = \"closed_root.mutex\" }]")
        .replace("name = \"remover\"", "name = \"remover\"\nholds = [{ lock = \"closed_root.mutex\" }]")
        + "\n[property]\nltl = \"<> (finished == 2)\"\nfair = true\n";
    let path = written("looping", &check);
    let (code, text) = model(&[path.to_str().unwrap(), "--no-minimise", "-o", "looping.finding.json"]);
    let begins = ["Spin:", "  from here", "On the", "  one round"];
    let shown: Vec<String> =
        text.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin))).map(masked).collect();
    expect![[r#"
        Spin: the model violates its property: acceptance cycle.
          from here on for ever:
        On the kernel: violated along the counterexample: infinite loop: 65537 preemption points passed and the test is not over (limit 65536)
          one round of the loop was replayed: the threads stand where they stood before it"#]].assert_eq(&shown.join("\n"));
    assert_eq!(code, Some(1), "{text}");
}

/// A module of ours on Debian's kernel: processors are driven along the lines of its debugging information.
#[test]
fn a_module_on_linux() {
    let Some(kernel) = guests::linux::test_store().kernels().pop().filter(|k| k.headers_found().is_some())
    else {
        eprintln!("passed over: no kernel with headers in target/linux; guests/linux/fetch brings one");
        return;
    };
    // The command looks for kernels in its user's cache.
    let cache = folder("cache-of-user").join("rockfall");
    let _ = std::fs::remove_dir_all(&cache);
    std::fs::create_dir_all(&cache).unwrap();
    std::os::unix::fs::symlink(kernel.folder().parent().unwrap(), cache.join("linux")).unwrap();
    let finding = folder("double_free.finding.json");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        command.env("XDG_CACHE_HOME", cache.parent().unwrap()).args(arguments);
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = run(&["model", &case("double_free"), "-o", finding.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    let begins = ["Model of", "Spin:", "Counterexample:", "On the"];
    let shown: Vec<String> =
        text.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin))).map(masked).collect();
    expect![[r#"
        Model of give_back: 38 lines for 2 processes; 5 statements translated by themselves, 0 by rules.
        Spin: the model violates its property: !(filled[object].freed) does not hold.
        Counterexample: 10 steps of the model, 6 of C lines, 1 context switch.
        On the kernel: violated along the counterexample: double free: t0 freed the block at 0xN again"#]]
    .assert_eq(&shown.join("\n"));
    let (code, again) = run(&["replay", finding.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{again}");
    assert!(text.contains(again.trim_end()), "{again}");

    let patch = guests::sources().join("models/double_free.diff").display().to_string();
    let check = case("double_free");
    let patched = ["model", &check, "--patch", &patch, "--no-minimise", "-o", finding.to_str().unwrap()];
    let (code, text) = run(&patched);
    assert_eq!(code, Some(0), "{text}");
    let after = text.lines().skip_while(|line| !line.starts_with("With the patch"));
    let shown: Vec<String> = after
        .filter(|line| ["Spin:", "On the", "The patch"].iter().any(|begin| line.starts_with(begin)))
        .map(masked)
        .collect();
    expect![[r#"
        Spin: the model is correct: all 49 states were visited.
        On the patched kernel: never reached: step 5 (first, ../linux/modules/double_free.c:27), because the thread of 'first' cannot go on
        The patch mends it: the model is clean, and the old counterexample no longer goes wrong."#]]
    .assert_eq(&shown.join("\n"));
}

/// What is wrong with a check or what surrounds it is said in a sentence.
#[test]
fn bad_input() {
    let text = std::fs::read_to_string(case("readdir_remove")).unwrap();
    let said = |name: &str, text: &str, more: &[&str]| {
        let path = written(name, text);
        let mut arguments = vec![path.to_str().unwrap(), "--no-replay"];
        arguments.extend(more);
        let (code, text) = model(&arguments);
        let sources = guests::sources().display().to_string();
        let says =
            |line: &&str| ["rockfall:", "Spin:", "No proof:"].iter().any(|begin| line.starts_with(begin));
        let line = text.lines().find(says);
        let place = folder("models").display().to_string();
        format!(
            "{} {}\n",
            code.unwrap_or(-1),
            line.unwrap_or(&text).replace(&sources, "GUESTS").replace(&place, "FOLDER")
        )
    };
    let mut output =
        said("unmatched", &text.replace("c = \"console_printf(...)\"", "c = \"printk(...)\""), &[]);
    let broken = folder("models").join("broken.c");
    std::fs::write(&broken, "int f(void)\n{\n    return 1 +;\n}\n").unwrap();
    output += &said("no_c", &text.replace("../pebbles/fs.c", broken.to_str().unwrap()), &[]);
    output += &said("no_promela", &text.replace("entry[1].name = 1;", "entry[1].name == = 1;"), &[]);
    output +=
        &said("no_memory", &text.replace("[property]", "[search]\nmemory-megabytes = 1\n[property]"), &[]);
    let bits = text.replace("define = [\"FAULT_FS_UNCOUNTED\"]\n", "");
    output += &said("bits", &bits.replace("[property]", "[search]\nbitstate = true\n[property]"), &[]);
    output += &said("no_time", &text, &["--budget", "0s"]);
    output += &said("no_trail", &text, &["--trail", "absent.trail"]);
    let kept = folder("kept");
    let (_, _) = model(&[&case("remove_remove"), "--no-replay", "--keep", kept.to_str().unwrap()]);
    output += &said("other_trail", &text, &["--trail", kept.join("model.pml.trail").to_str().unwrap()]);
    // What cannot be done at the end is reported before the work begins.
    std::fs::write(folder("models").join("not.diff"), "mend it\n").unwrap();
    let other = "--- a/pebbles/fs.c\n+++ b/pebbles/fs.c\n@@ -1,2 +1,2 @@\n not this\n-nor this\n+but this\n";
    let beside = folder("models").join("other.diff");
    std::fs::write(&beside, other).unwrap();
    let (code, patched) = model(&[&case("readdir_remove"), "--patch", beside.to_str().unwrap()]);
    assert!(!patched.contains("Model of") && patched.contains("other.diff does not apply: "), "{patched}");
    assert_eq!(code, Some(2));
    let patched = |name: &str| {
        let patch = folder("models").join(name).display().to_string();
        let (code, text) = model(&[&case("readdir_remove"), "--patch", &patch]);
        format!("{} {}", code.unwrap_or(-1), text.replace(&folder("models").display().to_string(), "FOLDER"))
    };
    output += &patched("not.diff");
    output += &patched("absent.diff");
    output += &said("nowhere", &text, &["--html", "absent/page.html"]);
    expect![[r#"
        2 rockfall: FOLDER/unmatched.toml: the rule for 'printk(...)' matches nothing in the extracted functions: mend its pattern or remove it
        2 rockfall: FOLDER/broken.c is not C that gcc accepts with these include paths and macros: FOLDER/broken.c:3:15: error: expected expression before ‘;’ token
        2 rockfall: Spin does not accept the model: spin: model.pml:165, Error: syntax error saw 'operator: =', in 'entry[1].name == = 1; entry[1].next = 2; entry[1].parent = open_root; entry[1].subdir = NULL;'; look at the rules and declarations of the check file
        0 Spin: no proof: the search ran out of its 1 MB before the first state; raise search.memory-megabytes, or let search.bitstate be true.
        0 Spin: nothing is wrong in 1,718 states, but that is no proof: the search was bounded by keeping states as bits, which may miss some.
        0 No proof: the time was up before the source was read.
        2 rockfall: there is no trail absent.trail: --trail reads one that Spin has left
        2 rockfall: the trail is not of this model (Spin says 'no matching stmnt'): check the model again to get one of its own
        2 rockfall: FOLDER/not.diff is no patch: it has no line '--- a/FILE'
        2 rockfall: cannot read FOLDER/absent.diff: No such file or directory (os error 2)
        2 rockfall: cannot write absent/page.html: there is no folder absent; name another file
    "#]].assert_eq(&output);
}

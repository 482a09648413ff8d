//! The images themselves: the same everywhere they are built, and the same console wherever they run.

mod lab;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use guests::{Build, Design, Image, qemu};
use lab::{Lab, Outcome, Sweep};

fn out(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn image(name: &str, faults: &[&str], designs: &[&str]) -> Image {
    let design = Design::parse(designs).expect("designs");
    let faults = faults.iter().map(|f| (*f).to_owned()).collect();
    Build { faults, design }.image(&out(name)).unwrap_or_else(|error| panic!("{error}"))
}

const SUITE: &str = "\
one two
life_test: ok
thread 17: page fault at 0x01000000, address 0x00000000
thread 18: page fault at 0x01000006, address 0x00100000
thread 19: page fault at 0x01000011, address 0x01000006
thread 20: fault 0 at 0x0100001e
thread 21: fault 13 at 0x01000021
thread 22: fault 6 at 0x01000023
thread 23: fault 13 at 0x01000026
kill_test: ok
sched_test: ok
swexn_test: ok
memory_test: ok
hello
console_test: ok
bad_pointer_test: ok
storm_test: ok
fork_bomb_test: ok
suite: 44 of 44 passed
";

const DESIGNS: &[&[&str]] = &[
    &[],
    &["current_on_queue"],
    &["yield_mutex"],
    &["idle_loop"],
    &["child_first"],
    &["preempt_flag"],
    &["idle_user"],
    &["current_on_queue", "yield_mutex", "idle_loop", "child_first", "preempt_flag"],
];

/// Each design with short ticks; the default one also with the usual and the longest.
fn runs() -> Vec<(&'static [&'static str], u32)> {
    let mut runs: Vec<_> = DESIGNS.iter().map(|design| (*design, 300)).collect();
    runs.extend([(DESIGNS[0], 0), (DESIGNS[0], 65_535)]);
    runs
}

#[test]
fn suite_passes_in_the_machine() {
    for (design, tick) in runs() {
        let image = image("machine", &[], design);
        let console = lab::console(&image.kernel, &format!("run=suite tick={tick}"));
        assert_eq!(console, SUITE, "{design:?}, tick={tick}");
    }
}

#[test]
fn suite_passes_in_qemu() {
    if !qemu::is_there() {
        eprintln!("there is no qemu-system-i386; nothing to compare with");
        return;
    }
    for (design, tick) in runs() {
        let image = image("qemu", &[], design);
        let console =
            qemu::run(&image.kernel, &format!("run=suite tick={tick}"), "", 120).expect("QEMU runs");
        assert_eq!(console, SUITE, "{design:?}, tick={tick}");
    }
}

/// What a person sees: prompt, echo, editing, unknown programs, statuses.
#[test]
fn shell_is_the_same_in_both() {
    const TYPED: &str = "echo a bc\nvanish_vanish\nnothing\nechx\u{8}o x\nexit\n";
    const SHOWN: &str = "\
$ echo a bc
a bc
echo: status 2
$ vanish_vanish
$ nothing
nothing: no such program
nothing: status -1
$ echx\u{8} \u{8}o x
x
echo: status 1
$ exit
";
    let image = image("shell", &[], &[]);
    assert_eq!(lab::console_with_input(&image.kernel, TYPED), SHOWN);
    if qemu::is_there() {
        assert_eq!(qemu::run(&image.kernel, "", TYPED, 60).expect("QEMU runs"), SHOWN);
    }
}

/// A fault shows only under the interleaving that its story tells: in an ordinary run all programs print what
/// they print on the kernel without faults.
#[test]
fn faults_are_invisible_in_ordinary_runs() {
    let correct = image("correct", &[], &[]);
    for fault in guests::faults() {
        let image = image("ordinary", &[&fault.name], &[]);
        for tick in [0, 23_456] {
            let run = format!("run={} tick={tick}", fault.test);
            let [with, without] = [&image, &correct].map(|image| lab::console(&image.kernel, &run));
            assert_eq!(with, without, "{}, tick={tick}", fault.name);
        }
    }
}

/// One preemption, at each point of a small test where another thread could run: the kernel without faults
/// holds.
#[test]
fn correct_kernel_survives_any_one_preemption() {
    for designs in [&[][..], &["current_on_queue", "yield_mutex", "idle_loop", "preempt_flag"]] {
        let lab = Lab::new(&image("correct", &[], designs).kernel, Design::parse(designs).expect("designs"));
        for (test, stride) in [
            ("vanish_vanish", 31),
            ("double_wait", 31),
            ("double_thread_fork", 1),
            ("yield_vanish", 1),
            ("fork_wait", 1),
            ("deschedule_wake", 1),
            ("print_remove", 1),
            ("double_new_pages", 1),
            ("mutex_test", 1),
            ("broadcast_test", 1),
            ("thr_exit_join", 3),
            ("paradise_lost", 9),
            ("benign_race", 1),
            ("lockfree_queue", 1),
        ] {
            let sweep = Sweep::of(&lab, test, 1, stride);
            assert!(sweep.all_passed(), "{test} in {designs:?}: {:?}", sweep.outcomes);
            assert!(sweep.runs > 50, "{test}: only {} runs", sweep.runs);
        }
    }
}

/// A sweep with one preemption finds the faults that the catalogue says one preemption exposes, where the
/// console or silence shows them.
#[test]
fn one_preemption_exposes_faults() {
    for (fault, test, stride, shows) in [
        ("vanish_circular", "vanish_vanish", 7, "Stuck"),
        ("vanish_unlocked", "vanish_vanish", 7, "assertion failed: list_empty(link)"),
        ("vanish_early_unlock", "vanish_vanish", 7, "assertion failed: list_empty(link)"),
        ("wait_wait", "double_wait", 50, "assertion failed: t->wait_next == NULL"),
        ("wait_misses_exit", "fork_wait", 1, "Stuck"),
        ("unprotected_run_queue", "double_thread_fork", 1, "Stuck"),
        ("interrupts_too_early", "deschedule_wake", 1, "Stuck"),
        ("stack_freed_early", "double_thread_fork", 1, "assertion failed: list_empty(&t->run_link)"),
        ("check_then_copy", "print_remove", 1, "PANIC: fault 14 in the kernel"),
        ("new_pages_unlocked", "double_new_pages", 1, "assertion failed: !*entry"),
        ("lost_wakeup", "broadcast_test", 1, "Stuck"),
        ("signal_before_wait", "broadcast_test", 1, "Stuck"),
        ("semaphore_lets_two_in", "paradise_lost", 10, "assertion failed: inside == 1"),
        ("downgrade_gap", "rwlock_downgrade_write_test", 10, "assertion failed: value == 1"),
        ("downgrade_forgets_readers", "rwlock_downgrade_read_test", 10, "Stuck"),
        ("double_free_in_join", "double_join", 5, "Stuck"),
        ("join_frees_running_stack", "thr_exit_join", 1, "page fault"),
        ("counter_without_lock", "counter_test", 1, "assertion failed: counter == 2"),
        ("torn_publish", "publish_test", 1, "assertion failed: m->length == 7"),
        ("circular_lock_order", "lock_order_test", 1, "Stuck"),
    ] {
        let lab = Lab::new(&image("exposed", &[fault], &[]).kernel, Design::default());
        let sweep = Sweep::of(&lab, test, 1, stride);
        let exposed = sweep.outcomes.keys().any(|outcome| match outcome {
            Outcome::Said(text) => text.contains(shows),
            Outcome::Stuck => shows == "Stuck",
            Outcome::Passed | Outcome::Endless => false,
        });
        assert!(exposed, "{fault}: {:?}", sweep.outcomes);
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The sources copied to another folder, with another cache, give the same bits: no path of the host is in
/// the image.
#[test]
fn bits_do_not_depend_on_the_folder() {
    let here = image("here", &[], &[]);
    let elsewhere = out("else where");
    let copy = elsewhere.join("guests");
    for folder in ["lib", "pebbles", "runtime", "threadlib", "programs"] {
        copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &copy.join(folder));
    }
    let there = Build::default().image_from(&copy, &elsewhere.join("cache"), &elsewhere.join("out"));
    let there = there.unwrap_or_else(|error| panic!("{error}"));
    let read = |path: &Path| fs::read(path).expect("an image");
    assert!(read(&here.kernel) == read(&there.kernel), "the kernels differ");
    let program = |image: &Image| read(&image.programs.join("paraguay"));
    assert!(program(&here) == program(&there), "the programs differ");
    fs::remove_dir_all(&elsewhere).expect("cleared");
}

#[test]
fn two_processes_may_build_at_once() {
    let cache = out("shared-cache");
    fs::remove_dir_all(&cache).ok();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let images: Vec<Image> = std::thread::scope(|scope| {
        let cache = &cache;
        let build =
            |i: u32| move || Build::default().image_from(sources, cache, &out(&format!("at-once-{i}")));
        let builds: Vec<_> = (0..2).map(|i| scope.spawn(build(i))).collect();
        builds.into_iter().map(|b| b.join().expect("no panic").expect("an image")).collect()
    });
    let [one, two] = [&images[0], &images[1]].map(|i| fs::read(&i.kernel).expect("an image"));
    assert!(one == two);
}

#[test]
fn missing_compiler_is_one_sentence() {
    let output = Command::new(env!("CARGO_BIN_EXE_guests"))
        .args(["build", "--out"])
        .arg(out("nowhere"))
        .env("PATH", "")
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "building a guest kernel needs `gcc`, which was not found; install gcc and binutils\n");
}

/// A program that was linked elsewhere, with the first function that the course's programs have.
const FOREIGN: &str = "\
void _main(int argc, char **argv, char *stack_high, char *stack_low)
{
    char here, *text = \"foreign: wrong\\n\";
    if (argc == 1 && argv[0][0] == 'f' && !argv[1] && stack_low <= &here && &here <= stack_high)
        text = \"foreign: right\\n\";
    int packet[2] = { 15, (int)text };
    asm volatile(\"int $0x4e\" : : \"S\"(packet) : \"memory\", \"eax\");
    asm volatile(\"int $0x59\" : : \"S\"(0) : \"eax\");
    asm volatile(\"int $0x60\");
    for (;;);
}
";

#[test]
fn a_program_of_somebody_else_runs_in_the_kernel() {
    let folder = out("foreign");
    fs::create_dir_all(&folder).expect("a folder");
    let (source, file) = (folder.join("foreign.c"), folder.join("foreign.elf"));
    fs::write(&source, FOREIGN).expect("a source");
    let flags = [
        "-m32",
        "-g",
        "-O1",
        "-ffreestanding",
        "-fno-pie",
        "-fno-stack-protector",
        "-fcf-protection=none",
        "-nostdlib",
    ];
    let linked = ["-static", "-no-pie", "-Wl,-e,_main", "-Wl,-Ttext=0x1000000", "-Wl,--build-id=none"];
    let mut gcc = Command::new("gcc");
    let done = gcc.args(flags).args(linked).arg("-o").arg(&file).arg(&source).status();
    assert!(done.expect("gcc runs").success());
    let with = |file: &Path| Build::default().image_of(guests::Size::default(), &[file.to_owned()], &folder);
    let image = with(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(lab::console(&image.kernel, "run=foreign"), "foreign: right\n");
    assert!(image.programs.join("foreign").exists());
    let refused = with(&source).unwrap_err().to_string();
    assert!(
        refused.ends_with("foreign.c: this is no program for 32-bit x86; link it with -m32 -static"),
        "{refused}"
    );
}

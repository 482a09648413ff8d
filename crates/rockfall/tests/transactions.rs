//! Programs with hardware transactions as their users meet them: bugs are found with a budget alone and seen
//! again, mended programs are exhausted, what cannot be combined is refused, and what is executed
//! speculatively ends as what is emulated.

mod ends;

use ends::{Ending, Ends, ends};
use explore::strategies::{DepthFirst, Dpor};
use explore::{Options, Search, Until, Workers, World};
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::driving::uniprocessor::transactions::Mode;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use guests::{Build, Program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use trace::{CpuId, PointSet, Step, StepEnd};

const KERNEL: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");

/// What the threads of programs do that are wrong in their own ways.
const MORE: [(&str, &str); 5] = [
    ("xend_alone", "_xend();"),
    // Cells of neither the same eight bytes nor different lines of 64.
    (
        "neighbours",
        "static volatile int cells[8] __attribute__((aligned(64))); unsigned status = _xbegin();\
         if (status == _XBEGIN_STARTED) { cells[thread * 4]++; _xend(); }\
         else assert(!(status & _XABORT_CONFLICT));",
    ),
    (
        "writes",
        "static volatile int cells[2][3][16] __attribute__((aligned(64))); unsigned status = _xbegin();\
         if (status == _XBEGIN_STARTED) { for (int i = 0; i < 3; i++) cells[thread][i][0]++; _xend(); }\
         else assert(!(status & _XABORT_CAPACITY));",
    ),
    (
        "calls",
        "if (_xbegin() == _XBEGIN_STARTED) { yield(-1); assert(_xtest()); _xend(); }\
         else panic(\"aborted\");",
    ),
    (
        "endless",
        "static volatile int stop; if (_xbegin() == _XBEGIN_STARTED) { while (!stop) continue; _xend(); }",
    ),
];

fn small_name(program: &str, iterations: u8) -> String {
    format!("{program}_2_{iterations}")
}

/// The kernel with its programs, built once.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("transactions");
    let [header, calls] = ["programs/htm.h", "runtime/syscall.h"].map(|path| guests::sources().join(path));
    let program = |&(name, work): &(&str, &str)| Program {
        name: name.to_owned(),
        source: format!(
            "#include \"{}\"\n#include \"{}\"\nstatic void work(int thread, int iteration) {{ (void)thread, (void)iteration; {work} }}\n\
             int main(void) {{ htm_run(); return 0; }}\n",
            header.display(),
            calls.display()
        ),
    };
    let small = SMALL.iter().map(|&(name, iterations, _)| Program {
        name: small_name(name, iterations),
        source: format!(
            "#define HTM_ITERATIONS {iterations}\n#include \"{}\"\n",
            guests::sources().join("programs").join(name).with_extension("c").display()
        ),
    });
    let more: Vec<Program> = MORE.iter().map(program).chain(small).collect();
    Build::default().image_with(&more, &folder).unwrap_or_else(|error| panic!("{error}"));
    folder
});

/// Exit code, output and what was said about errors.
fn rockfall(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
        .args(arguments)
        .current_dir(&*BUILT)
        .output()
        .expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&output.stderr);
    assert!(!errors.contains("bug in Rockfall"), "{errors}");
    (output.status.code(), text(&output.stdout), errors)
}

fn on_program(command: &str, program: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let program = format!("programs/{program}");
    let arguments = [command, "kernel", "-k", "pebbles", "--program", &program];
    rockfall(&[&arguments[..], more].concat())
}

#[test]
fn bugs_are_found_with_a_budget_alone() {
    let wrong =
        guests::faults().into_iter().filter(|fault| fault.flag.is_none() && !fault.findings.is_empty());
    for fault in wrong {
        let name = &fault.test;
        let (code, text, errors) = on_program("test", name, &["--budget", "60s", "--fresh", "--json"]);
        assert_eq!(code, Some(1), "{name}: {text}{errors}");
        let object: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
        let kind = object["finding"]["kind"].as_str().expect("a finding");
        assert!(fault.findings.iter().any(|known| known == kind), "{name}: {kind}");
        let (code, output, errors) = rockfall(&["replay", &format!("{name}.finding.json")]);
        assert_eq!(code, Some(1), "{name} is seen again: {errors}");
        assert!(output.contains("in the fallback:"), "{name} is told with its path: {output}");
    }
}

#[test]
fn mended_programs_are_exhausted() {
    for (program, how) in [
        ("htm2", "codes"),
        ("counter", "codes"),
        ("fig63", "codes"),
        ("swap", "stm"),
        ("lock_fast_spin_fixed", "stm"),
        ("avl_fixed", "stm"),
        ("map_basic", "stm"),
    ] {
        let points = ["--points", "lock,unlock,create,wake", "--transactions", how];
        let (code, text, errors) = on_program("explore", program, &points);
        assert_eq!(code, Some(0), "{program}: {text}{errors}");
        assert!(text.contains("exhausted"), "{program}: {text}");
    }
}

#[test]
fn races_are_reported_with_both_paths() {
    let (code, text, errors) = on_program("races", "htm1", &[]);
    assert!(code.is_some(), "{text}{errors}");
    let (code, text, errors) = on_program("test", "htm1", &["--budget", "60s", "--fresh"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("in the transaction:") && text.contains("in the fallback:"), "{text}");
}

#[test]
fn what_cannot_be_combined_is_refused() {
    for (program, flags, what) in [
        ("counter", &["--transactions", "real", "--tsx=off"][..], "--tsx=off that there are none"),
        ("counter", &["--line-size", "64"], "--line-size needs --transactions real or weak"),
        ("counter", &["--transactions", "stm", "--line-size", "64"], "--line-size needs"),
        ("counter", &["--transactions", "real", "--line-size", "24"], "a power of two from 8 to 4096"),
        ("avl_mutex", &["--transactions", "codes"], "no code here begins a transaction"),
        ("counter", &["--transactions", "soft"], "invalid value 'soft'"),
        ("counter", &["--tsx-cache", "3x8"], "the sets a power of two"),
        ("counter", &["--tsx-cache", "64x8", "--tsx=off"], "--tsx-cache is about transactions"),
    ] {
        let (code, _, errors) = on_program("explore", program, flags);
        assert_eq!(code, Some(2), "{flags:?}: {errors}");
        assert!(errors.contains(what), "{flags:?}: {errors}");
    }
}

/// As on a processor without.
#[test]
fn without_transactions_the_instructions_fault() {
    let (code, text, errors) = on_program("explore", "counter", &["--tsx=off"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("takes an invalid opcode in _xbegin"), "{text}");
}

#[test]
fn wrong_programs_end_as_findings() {
    let (code, text, errors) = on_program("explore", "xend_alone", &["--tsx"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("general protection"), "{text}");
    for how in ["retry", "codes", "stm", "weak", "real"] {
        let (code, text, errors) = on_program("explore", "endless", &["--transactions", how, "--fresh"]);
        assert_eq!(code, Some(1), "{how}: {text}{errors}");
        assert!(text.starts_with("Infinite loop"), "{how}: {text}");
    }
}

/// Neighbours conflict where they share a cache line.
#[test]
fn false_sharing_depends_on_the_line() {
    for (bytes, conflicts) in [("64", true), ("8", false)] {
        let flags =
            ["--points", "everywhere,within:work", "--transactions", "real", "--line-size", bytes, "--fresh"];
        let (code, text, errors) = on_program("explore", "neighbours", &flags);
        assert_eq!(code, Some(i32::from(conflicts)), "{bytes}: {text}{errors}");
        let expected = if conflicts { "_XABORT_CONFLICT" } else { "exhausted" };
        assert!(text.contains(expected), "{bytes}: {text}");
    }
}

/// A transaction that writes more lines than the cache has ways for aborts, however it is explored.
#[test]
fn what_does_not_fit_into_the_cache_aborts() {
    for (how, cache, fits) in [("codes", "64x8", true), ("codes", "1x2", false), ("real", "1x2", false)] {
        let flags = ["--transactions", how, "--tsx-cache", cache, "--fresh"];
        let (code, text, errors) = on_program("explore", "writes", &flags);
        assert_eq!(code, Some(i32::from(!fits)), "{how} {cache}: {text}{errors}");
        assert!(text.contains(if fits { "exhausted" } else { "_XABORT_CAPACITY" }), "{how} {cache}: {text}");
    }
}

/// In software's transactions without strong atomicity a system call proceeds, whoever runs meanwhile;
/// elsewhere it aborts.
#[test]
fn system_calls_proceed_in_weak_transactions() {
    for (how, aborts) in [("stm", true), ("weak", false)] {
        let flags = ["--points", "everywhere,within:work", "--transactions", how, "--fresh"];
        let (code, text, errors) = on_program("explore", "calls", &flags);
        assert_eq!(code, Some(i32::from(aborts)), "{how}: {text}{errors}");
        assert!(text.contains(if aborts { "aborted" } else { "exhausted" }), "{how}: {text}");
    }
}

fn in_words(step: &Step) -> String {
    match (&step.end, step.events.iter().rev().find_map(|event| console(&event.action))) {
        (StepEnd::Finished, Some(line)) => line,
        (StepEnd::Stuck { .. }, _) => "stuck".to_owned(),
        (end, _) => format!("{end:?}"),
    }
}

fn console(action: &trace::Action) -> Option<String> {
    match action {
        trace::Action::Console { line } => Some(line.clone()),
        _ => None,
    }
}

/// The program at its beginning; it says what its variables hold in the end.
fn world(program: &str, mode: Mode, variables: &'static [(&'static str, usize)]) -> World<Ending, Ends> {
    let file = std::fs::read(BUILT.join("kernel")).expect("just built");
    let kernel = Description::parse("pebbles.toml", KERNEL).expect("it is bundled");
    let kernel =
        Kernel::resolve(&kernel, &Image::parse("kernel", &file).expect("an ELF file")).expect("it fits");
    let bytes = std::fs::read(BUILT.join("programs").join(program)).expect("just built");
    let image = Image::parse(program, &bytes).expect("an ELF file");
    let library = Description::parse("pebbles-threads.toml", LIBRARY).expect("it is bundled");
    let kernel = kernel.with_program(&library, &image, program).expect("it fits");
    let setup = Setup {
        test: program.to_owned(),
        programs: vec![image.clone()],
        tsx: Some(mode.tsx()),
        ..Setup::default()
    };
    let mut started = lifecycle::start(&kernel, &file, &setup).expect("the program starts");
    started.subject.explore_transactions(mode);
    let says = move |program: &Uniprocessor, end: &StepEnd| {
        let value = |(name, size): &(&str, usize)| {
            let mut bytes = vec![0; *size];
            let addr = image.symbol(name).expect("a variable").addr;
            assert!(program.machine.read_virt(CpuId(0), addr, &mut bytes), "{name} is still there");
            format!("{name}={bytes:02x?}")
        };
        (*end == StepEnd::Finished).then(|| variables.iter().map(value).collect())
    };
    ends::world(started.subject, Arc::new(says), in_words)
}

/// A program, how many iterations its two threads have, and what counts in the end, in bytes.
type Small = (&'static str, u8, &'static [(&'static str, usize)]);

/// Every program with transactions, so small that it can be executed speculatively with every interleaving of
/// its work.
const SMALL: [Small; 16] = [
    ("htm1", 1, &[("counter", 4)]),
    ("counter", 1, &[("counter", 4)]),
    ("fig63", 1, &[("cells", 8)]),
    ("htm2", 1, &[("counter", 4)]),
    ("swap", 1, &[("elements", 24)]),
    ("swapbug", 1, &[("elements", 24)]),
    ("avl_insert", 1, &[("root", 4), ("nodes", 32)]),
    ("avl_fixed", 1, &[("root", 4), ("nodes", 32)]),
    ("map_basic", 1, &[("size", 4), ("buckets", 4), ("table", 4), ("tables", 512), ("entries", 16)]),
    ("map_basicer", 1, &[("size", 4), ("buckets", 4), ("table", 4), ("tables", 512), ("entries", 16)]),
    ("lock_spinlock", 1, &[("inside", 4), ("lock_word", 4)]),
    ("lock_spin_fixed", 1, &[("inside", 4), ("lock_word", 4)]),
    ("lock_mutex", 1, &[("inside", 4), ("lock_taken", 4)]),
    ("lock_fast_spinlock", 1, &[("lock_word", 4)]),
    ("lock_fast_spin_fixed", 1, &[("lock_word", 4)]),
    ("lock_fast_mutex", 1, &[("lock_taken", 4)]),
];

/// Programs whose threads are preempted in a transaction only before it ends, because elsewhere there is too
/// much to preempt at.
const LARGEST: [&str; 2] = ["map_basic", "map_basicer"];

/// Programs whose transactions can abort each other for ever, because they try again: some of their
/// interleavings are run.
const ENDLESS: [&str; 4] = ["lock_spinlock", "lock_spin_fixed", "lock_mutex", "lock_fast_spinlock"];
const INTERLEAVINGS_OF_ENDLESS: u64 = 1_000;

/// Programs with so few interleavings that all of them are run.
const SMALLEST: [&str; 3] = ["htm1", "counter", "fig63"];

/// How the first interleavings end.
fn some_ends(world: &World<Ending, Ends>, points: &PointSet) -> (BTreeSet<String>, u64) {
    let interleavings_max = Some(INTERLEAVINGS_OF_ENDLESS);
    let options = Options { until: Until::Exhausted, interleavings_max, ..Options::default() };
    let mut workers = Workers::new(2, world, points, options.depth_max, 64 << 20);
    let mut search: Search<Dpor, String> = Search::new(Dpor::default(), options);
    search.run(&mut workers, &|| false, &mut |_| {});
    (search.notes().keys().cloned().collect(), search.counts().interleavings)
}

/// Theorem 3 of Blum 2018, tested: a transaction that is one step or aborts at once ends as one that is
/// preempted inside and rolled back. The reduction of the latter is held against every interleaving where
/// those are few. Where other codes are chosen too, a program that looks at them may end in more ways: a
/// conflict that says nothing of trying again.
#[test]
fn speculation_ends_as_emulation() {
    for (name, iterations, variables) in SMALL {
        let large = LARGEST.contains(&name) || ENDLESS.contains(&name);
        let points = if large { "lock,unlock" } else { "everywhere,within:work" };
        let points: PointSet = points.parse().expect("points");
        let program = &small_name(name, iterations);
        let (emulated, few) = ends(&world(program, Mode::Retry, variables), &points, Dpor::default());
        let real = world(program, Mode::Real, variables);
        let (executed, many) = match ENDLESS.contains(&name) {
            true => some_ends(&real, &points),
            false => ends(&real, &points, Dpor::default()),
        };
        println!("{program}: {} ends, {few} interleavings emulated, {many} executed", emulated.len());
        assert_eq!(emulated, executed, "{program}");
        let (coded, _) = ends(&world(program, Mode::Codes, variables), &points, Dpor::default());
        assert!(emulated.is_subset(&coded), "{program}");
        assert!(emulated == coded || name.starts_with("lock"), "{program}: {coded:?}");
        if SMALLEST.contains(&name) {
            let (every, interleavings) = ends(&real, &points, DepthFirst);
            println!("{program}: {interleavings} interleavings without reduction");
            assert_eq!(executed, every, "{program}");
            let (every, _) = ends(&world(program, Mode::Codes, variables), &points, DepthFirst);
            assert_eq!(coded, every, "{program}");
        }
    }
}

/// Only with weak atomicity does the fallback come in between what a transaction reads and writes.
#[test]
fn weak_atomicity_loses_what_strong_atomicity_keeps() {
    let points: PointSet = "everywhere,within:work".parse().expect("points");
    let of = |mode| ends(&world("counter", mode, &[("counter", 4)]), &points, Dpor::default()).0;
    let (strong, weak) = (of(Mode::Real), of(Mode::Weak));
    assert_eq!(strong.len(), 1, "{strong:?}");
    assert!(weak.len() > 1, "{weak:?}");
}

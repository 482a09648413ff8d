//! `rockfall check` of Debian's Linux kernel: its boot and the bundled tests break no rule about locks;
//! modules with faults do, or have races, and their mended twins do not; what cannot be watched is refused
//! with a sentence.

use guests::linux::Debian;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn kernel() -> Option<String> {
    let found = Debian::find().map(|debian| debian.kernel.display().to_string());
    if found.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    found
}

fn linux(path: &str) -> String {
    guests::sources().join("linux").join(path).display().to_string()
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("check-linux");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Exit code, standard output and standard error.
fn check(kernel: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.current_dir(folder()).args(["check", kernel]).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("the command starts");
    let code = output.status.code();
    let [shown, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (code, shown, errors)
}

#[test]
fn a_boot_and_the_bundled_tests_break_no_rule() {
    let Some(kernel) = kernel() else { return };
    let (code, output, errors) = check(&kernel, &["--linux", &linux("tests"), "--lockdep", "--json"]);
    let output: serde_json::Value =
        serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{errors}"));
    assert_eq!(output["findings"].as_array().map(Vec::len), Some(0), "{output:#}");
    let results = output["results"].as_array().expect("the tests' results");
    assert!(results.len() >= 3 && results.iter().all(|result| result[1] == 0), "{output:#}");
    assert!(output["events"].as_u64() > Some(300_000), "{output:#}");
    assert_eq!(code, Some(0));
}

/// What `check` says of a module with its fault, and of the mended one. `None`: modules cannot be built here.
fn module(name: &str) -> Option<[String; 2]> {
    let kernel = kernel()?;
    let (source, test) = (linux(&format!("modules/{name}.c")), linux(&format!("modules/tests/{name}.c")));
    let with = ["--linux", &test, "--module-source", &source, "--lockdep"];
    let (code, broken, errors) = check(&kernel, &with);
    if code == Some(2) {
        assert!(errors.contains("rockfall linux fetch"), "{errors}");
        eprintln!("passed over: {errors}");
        return None;
    }
    let (_, mended, _) = check(&kernel, &[&with[..], &["--module-define", "MENDED"]].concat());
    Some([broken, mended])
}

/// From a lock order to the deadlock itself.
#[test]
fn contradicting_orders_in_a_module_are_confirmed() {
    let Some(kernel) = kernel() else { return };
    let (source, test) = (linux("modules/abba.c"), linux("modules/tests/abba.c"));
    let with = ["--linux", &test, "--module-source", &source, "--lockdep", "--confirm", "5m"];
    let (code, output, errors) = check(&kernel, &with);
    if code == Some(2) {
        assert!(errors.contains("rockfall linux fetch"), "{errors}");
        eprintln!("passed over: {errors}");
        return;
    }
    assert!(output.contains("confirmed, with a schedule: test abba of Linux"), "{output}");
    assert!(output.contains("rockfall replay abba.finding.json"), "{output}");
    assert_eq!(code, Some(1), "{output}");
}

#[test]
fn contradicting_orders_in_a_module_are_reported_with_stacks() {
    let Some([broken, mended]) = module("abba") else { return };
    for words in [
        "Lock order: ",
        "right_lock [abba] before left_lock [abba]",
        "asked for left_lock [abba] while it held right_lock [abba]",
        "in to_left [abba]",
        "in to_right [abba]",
        "(abba[",
    ] {
        assert!(broken.contains(words), "{words}: {broken}");
    }
    assert!(mended.contains(": 0 findings in its boot and 1 test, "), "{mended}");
}

/// A module in which processors are kept from going away before its lock is taken, and behind it.
const HOTPLUG: &str = r#"
#include <linux/cpu.h>
#include <linux/mutex.h>
#include "rockfall_module.h"

static DEFINE_MUTEX(table_lock);

static long add(unsigned long unused)
{
    cpus_read_lock();
    mutex_lock(&table_lock);
    mutex_unlock(&table_lock);
    cpus_read_unlock();
    return 0;
}

static long show(unsigned long unused)
{
    mutex_lock(&table_lock);
    cpus_read_lock();
    cpus_read_unlock();
    mutex_unlock(&table_lock);
    return 0;
}

ROCKFALL_MODULE(hotplug, nothing_to_begin, nothing_to_end, add, show, show);
"#;

const HOTPLUG_TEST: &str = r#"
#include "rockfall_module_test.h"

static void setup(void)
{
    open_device("/dev/hotplug");
    expect(call(0, 0) == 0 && call(1, 1) == 0);
}

static void first(void) { expect(call(0, 0) == 0); }
static void second(void) { expect(call(1, 1) == 0); }
static void check(void) {}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};
"#;

/// What `check --lockdep` says of a module and its test that are written here. `None`: modules cannot be built here.
fn own_module(name: &str, source: &str, test: &str, define: &[&str]) -> Option<String> {
    let kernel = kernel()?;
    let place = |file: &str| folder().join(name).join(file);
    std::fs::create_dir_all(folder().join(name)).unwrap();
    for (header, from) in [
        ("rockfall_module.h", "modules/rockfall_module.h"),
        ("rockfall_module_test.h", "modules/tests/rockfall_module_test.h"),
    ] {
        std::fs::copy(linux(from), place(header)).unwrap();
    }
    let file = format!("{name}.c");
    std::fs::write(place(&file), source).unwrap();
    std::fs::write(place("test.c"), test).unwrap();
    let [module, test] = [&file, "test.c"].map(|name| place(name).display().to_string());
    let with = ["--linux", &test, "--module-source", &module, "--lockdep"];
    let (code, output, errors) = check(&kernel, &[&with[..], define].concat());
    if code == Some(2) {
        assert!(errors.contains("rockfall linux fetch"), "{errors}");
        eprintln!("passed over: {errors}");
        return None;
    }
    Some(output)
}

#[test]
fn whoever_keeps_processors_from_going_away_is_a_reader() {
    let Some(output) = own_module("hotplug", HOTPLUG, HOTPLUG_TEST, &[]) else { return };
    for words in [
        "asked for cpu_hotplug_lock while it held table_lock [hotplug]",
        "asked for table_lock [hotplug] while it held cpu_hotplug_lock",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

/// A module whose readers take a lock inside of their read side, and who waits for them has that lock.
const SLEEPING_READERS: &str = r#"
#include <linux/mutex.h>
#include <linux/srcu.h>
#include "rockfall_module.h"

static DEFINE_MUTEX(table_lock);
DEFINE_STATIC_SRCU(readers);

static long look(unsigned long unused)
{
    int side = srcu_read_lock(&readers);
    mutex_lock(&table_lock);
    mutex_unlock(&table_lock);
    srcu_read_unlock(&readers, side);
    return 0;
}

static long change(unsigned long unused)
{
    mutex_lock(&table_lock);
#ifndef MENDED
    synchronize_srcu(&readers);
#endif
    mutex_unlock(&table_lock);
#ifdef MENDED
    synchronize_srcu(&readers);
#endif
    return 0;
}

ROCKFALL_MODULE(sleeping_readers, nothing_to_begin, nothing_to_end, look, change);
"#;

#[test]
fn whoever_waits_for_readers_that_sleep_has_none_of_their_locks() {
    // One after the other: at the same time they would wait for each other, for ever.
    let test = HOTPLUG_TEST.replace("hotplug", "sleeping_readers");
    let test = test.replace("second(void) { expect(call(1, 1) == 0); }", "second(void) {}");
    let run = |define: &[&str]| own_module("sleeping_readers", SLEEPING_READERS, &test, define);
    let Some(broken) = run(&[]) else { return };
    for words in ["Lock order: ", "in look [sleeping_readers]", "in change [sleeping_readers]"] {
        assert!(broken.contains(words), "{words}: {broken}");
    }
    let mended = run(&["--module-define", "MENDED"]).expect("the other one was built");
    assert!(mended.contains(": 0 findings in its boot and 1 test, "), "{mended}");
}

/// A module that takes two locks in either order, which locks that are taken by wounding or waiting allow; one
/// of them is then forgotten.
const WOUND_OR_WAIT: &str = r#"
#include <linux/ww_mutex.h>
#include "rockfall_module.h"

static DEFINE_WW_CLASS(class);
static struct ww_mutex left, right;

static int begin(void)
{
    ww_mutex_init(&left, &class);
    ww_mutex_init(&right, &class);
    return 0;
}

static long both(struct ww_mutex *one, struct ww_mutex *other)
{
    struct ww_acquire_ctx context;
    long error;

    ww_acquire_init(&context, &class);
    error = ww_mutex_lock(one, &context);
    if (!error) {
        error = ww_mutex_lock(other, &context);
        if (!error)
            ww_mutex_unlock(other);
        ww_mutex_unlock(one);
    }
    ww_acquire_fini(&context);
    return error == -EDEADLK ? 0 : error;
}

static long to_right(unsigned long unused) { return both(&left, &right); }
static long to_left(unsigned long unused) { return both(&right, &left); }

static long keep(unsigned long unused)
{
    ww_mutex_lock(&left, NULL);
#ifdef MENDED
    ww_mutex_unlock(&left);
#endif
    return 0;
}

ROCKFALL_MODULE(wound_or_wait, begin, nothing_to_end, to_right, to_left, keep);
"#;

#[test]
fn locks_taken_by_wounding_or_waiting_have_no_order_and_are_given_back() {
    let test = HOTPLUG_TEST.replace("hotplug", "wound_or_wait");
    let test = test.replace("check(void) {}", "check(void) { expect(call(0, 2) == 0); }");
    let run = |define: &[&str]| own_module("wound_or_wait", WOUND_OR_WAIT, &test, define);
    let Some(broken) = run(&[]) else { return };
    assert!(broken.contains("is still held on return to user mode"), "{broken}");
    assert!(broken.contains("left [wound_or_wait]") && !broken.contains("Lock order: "), "{broken}");
    let mended = run(&["--module-define", "MENDED"]).expect("the other one was built");
    assert!(mended.contains(": 0 findings in its boot and 1 test, "), "{mended}");
}

/// Two threads, each on a processor of its own, that write a file and ask for its state.
const WRITES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *reader(void *unused)
{
    struct stat status;
    int file = open("/tmp/file", O_RDONLY | O_CREAT, 0600);
    pin(1);
    for (int i = 0; i < 5000; i++)
        fstat(file, &status);
    return unused;
}

int main(void)
{
    pthread_t other;
    int file = open("/tmp/file", O_WRONLY | O_CREAT | O_APPEND, 0600);
    pthread_create(&other, 0, reader, 0);
    pin(0);
    for (int i = 0; i < 5000; i++)
        if (write(file, "x", 1) != 1)
            return 1;
    return pthread_join(other, 0);
}
"#;

/// Held back twice by the same command, processors meet the same races; rules about locks hold there, too.
#[test]
fn processors_that_are_held_back_meet_races() {
    let Some(kernel) = kernel() else { return };
    let source = folder().join("writes.c");
    std::fs::write(&source, WRITES).unwrap();
    let source = source.display().to_string();
    let arguments = ["--linux", &source, "--kcsan", "--every", "10", "--json"];
    let [first, again] = [(); 2].map(|()| {
        let (_, output, errors) = check(&kernel, &arguments);
        let output: serde_json::Value =
            serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{errors}"));
        output
    });
    assert_eq!(first["findings"].as_array().map(Vec::len), Some(0), "{first:#}");
    assert_eq!(first["races"], again["races"], "the same command holds the same processors back");
    let races = first["races"][0]["races"]["races"].as_array().expect("a list");
    assert!(!races.is_empty(), "{first:#}");
    for race in races {
        let depth = |side: &str| race[side]["stack"].as_array().map_or(0, Vec::len);
        assert!(depth("held") > 1 && (race["other"].is_null() || depth("other") > 1), "{race:#}");
    }
}

/// Two processors that add to the counter of a module, again and again.
const ADDS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>

static void *add(void *cpu)
{
    int file = open("/dev/lost_update", O_RDWR);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((long)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (int i = 0; i < 10000; i++)
        if (ioctl(file, 0x5200, 0) != 0)
            return (void *)1;
    return 0;
}

int main(void)
{
    pthread_t other;
    void *failed;
    pthread_create(&other, 0, add, (void *)1);
    return add((void *)0) != 0 || pthread_join(other, &failed) || failed;
}
"#;

/// A module that forgets its lock is caught by watchpoints with what is set unless it is said otherwise; the one
/// that does not is not.
#[test]
fn watchpoints_catch_the_race_of_a_module() {
    let Some(kernel) = kernel() else { return };
    let test = folder().join("adds.c");
    std::fs::write(&test, ADDS).unwrap();
    let (test, module) = (test.display().to_string(), linux("modules/lost_update.c"));
    let with = ["--linux", &test, "--module-source", &module, "--cpus", "2", "--kcsan", "--json"];
    for (define, broken) in [(&[][..], true), (&["--module-define", "MENDED"][..], false)] {
        let (code, output, errors) = check(&kernel, &[&with[..], define].concat());
        if code == Some(2) {
            assert!(errors.contains("rockfall linux fetch"), "{errors}");
            eprintln!("passed over: {errors}");
            return;
        }
        let output: serde_json::Value =
            serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{errors}"));
        assert_eq!(output["findings"].as_array().map(Vec::len), Some(0), "{output:#}");
        let races = output["races"][0]["races"]["races"].as_array().expect("a list");
        let own = races.iter().filter(|race| race.to_string().contains("[lost_update]")).count();
        assert_eq!(own > 0, broken, "{races:#?}");
    }
}

/// A module that forgets its lock, by happens-before: told with both stacks; and the one that does not, of
/// which nothing is reported.
#[test]
fn races_of_a_module_are_reported_with_stacks() {
    let Some(kernel) = kernel() else { return };
    let (source, test) = (linux("modules/lost_update.c"), linux("modules/tests/lost_update.c"));
    let with = ["--linux", &test, "--module-source", &source, "--hb", "--json"];
    for (define, broken) in [(&[][..], true), (&["--module-define", "MENDED"][..], false)] {
        let (code, output, errors) = check(&kernel, &[&with[..], define].concat());
        if code == Some(2) {
            assert!(errors.contains("rockfall linux fetch"), "{errors}");
            eprintln!("passed over: {errors}");
            return;
        }
        let output: serde_json::Value =
            serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}{errors}"));
        for tool in output["races"].as_array().expect("a list") {
            let races = tool["races"]["races"].as_array().expect("a list");
            let own = |race: &&serde_json::Value| race.to_string().contains("[lost_update]");
            let own: Vec<_> = races.iter().filter(own).collect();
            assert_eq!(!own.is_empty(), broken, "{}: {own:#?}", tool["tool"]);
            for race in own {
                let depth = |side: &str| race[side]["stack"].as_array().map_or(0, Vec::len);
                assert!(depth("first") > 1 && depth("second") > 1, "{race:#}");
            }
        }
    }
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let Some(kernel) = kernel() else { return };
    let (code, _, errors) = check(&kernel, &["--linux", &linux("tests"), "--hb", "--kcsan"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("--kcsan makes a run of its own"), "{errors}");
    let own = env!("CARGO_BIN_EXE_rockfall");
    let (code, _, errors) = check(own, &["--linux", &linux("tests")]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("its locks cannot be followed"), "{errors}");
}

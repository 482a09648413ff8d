//! A run that is killed at any moment goes on from its folder and ends with the statement of one that nobody
//! disturbed; folders that are damaged, foreign, in use or impossible to write are reported in a sentence.

use guests::Build;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const KILLS: u32 = 20;

/// How often it is looked whether something has happened.
const POLL: Duration = Duration::from_millis(5);

/// The bundled kernel and its programs, and a place to work in.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resume").join(name);
    Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}"));
    folder
}

fn command(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(["test", "kernel", "-k", "pebbles"]);
    if !more.contains(&"--program") {
        command.args(["--program", "programs/mutex_test"]);
    }
    if !more.contains(&"--budget") {
        command.args(["--budget", "10m"]);
    }
    command.args(more).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(folder: &Path, more: &[&str]) -> Output {
    command(folder, more).output().expect("the command starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What was proved and found, without how long it took, how much was done in vain, and which of two ways led
/// to the end.
fn statement(text: &str) -> String {
    let timed = |line: &&str| {
        line.contains(" state spaces, ") && line.trim_start().starts_with(char::is_numeric)
            || line.starts_with("  The proof: ")
    };
    text.lines().filter(|line| !timed(line)).collect::<Vec<_>>().join("\n")
}

/// Numbers that look as if by chance, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn wait(child: Child) -> Output {
    child.wait_with_output().expect("its output")
}

/// Waits until a process has made a file.
fn wait_for(file: &Path, child: &mut Child) {
    while !file.exists() {
        let ended = child.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "it ended without making {}", file.display());
        std::thread::sleep(POLL);
    }
}

#[test]
fn killed_twenty_times_it_ends_with_the_same_statement() {
    let folder = folder("killed");
    // A run by a Rockfall from before is none to resume.
    let _ = std::fs::remove_dir_all(folder.join("killed"));
    let begun = Instant::now();
    let undisturbed = run(&folder, &["--run", "whole", "--fresh"]);
    let whole = begun.elapsed();
    assert_eq!(undisturbed.status.code(), Some(0), "{}", errors(&undisturbed));
    let expected = statement(&out(&undisturbed));
    assert!(expected.contains("all that is known to matter is exhausted"), "{expected}");

    let mut chance = Chance(7);
    let mut fresh = true;
    let mut killed = 0;
    while killed < KILLS {
        let more: &[&str] = if fresh { &["--run", "killed", "--fresh"] } else { &["--run", "killed"] };
        fresh = false;
        let mut child = command(&folder, more).spawn().expect("the command starts");
        // Whichever moment that is, and however slow the host: what follows must hold for all of them.
        let moment = whole.as_micros() as u64 * chance.below(1000) / 1000;
        let until = Instant::now() + Duration::from_micros(moment);
        while Instant::now() < until && child.try_wait().expect("it can be asked").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let output = wait(child);
        if output.status.code().is_some() {
            // It was faster than the kill, and another run may begin.
            assert_eq!(statement(&out(&output)), expected, "after {killed} kills: {}", errors(&output));
            fresh = true;
        } else {
            killed += 1;
        }
    }
    let last = run(&folder, &["--run", "killed"]);
    assert_eq!(last.status.code(), Some(0), "{}", errors(&last));
    assert_eq!(statement(&out(&last)), expected);
}

/// Whatever had time to be tried, and whichever space was the first to be a proof.
#[test]
fn however_it_was_run_the_statement_is_the_same() {
    let folder = folder("ways");
    for program in ["spin_test", "benign_race", "lockfree_queue", "yield_test", "call_order", "mutex_test"] {
        let program = format!("programs/{program}");
        let ways: [&[&str]; 4] = [
            &["--workers", "1"],
            &["--workers", "2"],
            &["--workers", "5"],
            &["--workers", "2", "--ram", "1K"],
        ];
        let statements = ways.map(|way| {
            let more = ["--program", &program, "--run", "run", "--fresh"];
            let output = run(&folder, &[&more[..], way].concat());
            assert_eq!(output.status.code(), Some(0), "{program} {way:?}: {}", errors(&output));
            statement(&out(&output))
        });
        assert!(statements[0].contains("all that is known to matter is exhausted"), "{}", statements[0]);
        for (way, other) in ways.iter().zip(&statements) {
            assert_eq!(other, &statements[0], "{program} {way:?}");
        }
    }
}

#[test]
fn a_run_that_was_stopped_goes_on() {
    let folder = folder("stopped");
    // So short that it ends before the first interleaving, whatever the host: those that are killed end
    // anywhere.
    let first = run(&folder, &["--run", "run", "--fresh", "--budget", "0.001s"]);
    assert!(out(&first).contains("The same command again goes on from here."), "{}", out(&first));
    let second = run(&folder, &["--run", "run"]);
    assert!(errors(&second).contains("going on with the run in run: "), "{}", errors(&second));
    assert!(out(&second).contains("all that is known to matter is exhausted"), "{}", out(&second));
    let third = run(&folder, &["--run", "run"]);
    assert!(errors(&third).contains("this was finished before"), "{}", errors(&third));
    assert_eq!(statement(&out(&third)), statement(&out(&second)));
    // With no memory to spare searches wait in the folder, and nothing else changes.
    let poor = run(&folder, &["--run", "poor", "--fresh", "--ram", "1K"]);
    assert_eq!(statement(&out(&poor)), statement(&out(&second)), "{}", errors(&poor));
}

/// Between a bug that was found and its report lies the search for the fewest preemptions. Killed in there,
/// the next run tells the same bug without looking for it again.
#[test]
fn a_bug_that_was_found_is_not_lost() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resume").join("bug");
    let build = Build { faults: vec!["lost_wakeup".into()], ..Build::default() };
    build.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let more = ["--program", "programs/broadcast_test", "--run", "run", "--json"];
    let conclusion = |output: &Output| {
        let text = out(output);
        let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
        (output.status.code(), last["finding"]["signature"].clone(), text.matches("\"progress\"").count())
    };
    let mut killed = 0;
    for round in 0..20 {
        let _ = std::fs::remove_dir_all(folder.join("run"));
        let mut child = command(&folder, &more).spawn().expect("the command starts");
        let mut events = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let bug = events.find_map(|line| line.ok().filter(|line| line.contains("\"event\":\"bug\"")));
        let bug: Value = serde_json::from_str(&bug.expect("a bug is told at once")).expect("an object");
        let _ = child.kill();
        child.wait().expect("its end");
        let was_reported = events.any(|line| line.is_ok_and(|line| !line.contains("\"event\":")));
        let (code, signature, progress) = conclusion(&run(&folder, &more));
        assert_eq!((code, &signature), (Some(1), &bug["signature"]), "round {round}");
        if !was_reported {
            assert_eq!(progress, 0, "nothing is searched again");
            killed += 1;
        }
        if killed == 3 {
            return;
        }
    }
    panic!("the report comes so quickly after the bug that it is never cut off");
}

#[test]
fn an_interrupt_ends_with_the_statement() {
    let folder = folder("interrupted");
    let _ = std::fs::remove_dir_all(folder.join("run"));
    let long = ["--program", "programs/thr_exit_join", "--run", "run"];
    let mut child = command(&folder, &long).spawn().expect("the command starts");
    wait_for(&folder.join("run/run"), &mut child);
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.is_ok_and(|status| status.success()));
    let output = wait(child);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = out(&output);
    assert!(text.contains("no bug found, but this is no proof (stopped)"), "{text}");
    assert!(text.contains("\nNot exhausted:\n") && text.contains("\nData races: "), "{text}");
}

#[test]
fn folders_that_do_not_fit_are_reported() {
    let folder = folder("misfits");
    let short: &[&str] = &["--run", "run", "--budget", "0.1s"];
    let begin = || assert_eq!(run(&folder, &[short, &["--fresh"]].concat()).status.code(), Some(0));
    let file = folder.join("run/run");
    let check = |more: &[&str], expected: &str| {
        let output = run(&folder, &[short, more].concat());
        assert_eq!(output.status.code(), Some(2), "{expected}: {}", out(&output));
        assert!(errors(&output).contains(expected), "{}", errors(&output));
        assert_eq!(errors(&output).trim().lines().count(), 1, "{}", errors(&output));
    };

    begin();
    check(&["--races", "pure"], "run holds a run of something else (test mutex_test of pebbles)");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    check(&[], "run is damaged (it is cut off)");
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(&file, &changed).unwrap();
    check(&[], "run is damaged (its contents have changed)");
    std::fs::write(&file, "").unwrap();
    check(&[], "begin anew with --fresh");
    begin();

    // A job that is damaged is begun again; what was proved of others stays.
    for entry in std::fs::read_dir(folder.join("run")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("job-") {
            std::fs::write(entry.path(), "nonsense").unwrap();
        }
    }
    let output = run(&folder, &["--run", "run"]);
    assert!(out(&output).contains("all that is known to matter is exhausted"), "{}", errors(&output));

    let long = ["--program", "programs/thr_exit_join", "--run", "busy"];
    let _ = std::fs::remove_dir_all(folder.join("busy"));
    let mut busy = command(&folder, &long).spawn().expect("the command starts");
    wait_for(&folder.join("busy/run"), &mut busy);
    // It is there as long as it is wanted, however slow the host is.
    let stopped = Command::new("kill").args(["-STOP", &busy.id().to_string()]).status();
    assert!(stopped.expect("kill starts").success(), "it ended too early");
    let output = run(&folder, &long);
    let _ = busy.kill();
    wait(busy);
    assert!(errors(&output).contains("another rockfall is at work in busy"), "{}", errors(&output));
    assert_eq!(output.status.code(), Some(2));

    // Where nothing can be written the run goes on all the same.
    let output = run(&folder, &["--run", "/dev/full/run", "--budget", "0.1s"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(errors(&output).contains("the run goes on, but what it does"), "{}", errors(&output));
}

/// `explore` goes on with a search that was cut off, and ends as one that was not.
#[test]
fn a_search_that_was_cut_off_goes_on() {
    let folder = folder("explored");
    let explore = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        command.args(["explore", "kernel", "-k", "pebbles", "--program", "programs/broadcast_test"]);
        command.args(["--points", "create,wake,lock,unlock", "--json"]).args(more);
        let output = command.current_dir(&folder).output().expect("the command starts");
        let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
        (object["verdict"].as_str().unwrap_or_default().to_owned(), object["interleavings"].as_u64())
    };
    let whole = explore(&["--fresh", "--run", "whole"]);
    assert_eq!(whole.0, "exhausted");
    let cut = explore(&["--fresh", "--run", "parts", "--budget", "0.01s"]);
    let (mut parts, mut anew) = (1, 0);
    let mut last = cut;
    while last.0 == "out-of-budget" && parts < 10_000 {
        assert!(folder.join("parts/job-0").exists(), "it is kept");
        let next = explore(&["--run", "parts", "--budget", "0.2s"]);
        // Where words of memory are found to matter, the space is begun again, and counted anew.
        anew += usize::from(next.1 < last.1);
        assert!(anew < 8, "it goes on: {next:?} after {last:?}");
        (last, parts) = (next, parts + 1);
    }
    // Which words of stacks count is learned on the way, round by round, and a round that is cut off may
    // learn fewer: the space is exhausted all the same, but with a few interleavings more or less.
    assert_eq!(last.0, whole.0, "in {parts} parts");
    assert!(!folder.join("parts").exists(), "what is finished leaves nothing behind");
}

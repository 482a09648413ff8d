//! Linux as its users meet it: a test is packed, run, saved and started again; a shell is typed to; and what
//! cannot be used is refused with a sentence.

use guests::linux::Debian;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn rockfall(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().expect("the command starts")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).replace('\r', "")
}

fn instructions(text: &str) -> &str {
    text.lines()
        .find_map(|line| line.split_once(" instructions in"))
        .map(|(count, _)| count)
        .unwrap_or_default()
}

fn debian() -> Option<Debian> {
    let found = Debian::find();
    if found.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    found
}

const TEST: &str = r#"
#include "rockfall_test.h"
static int a, b;
static void first(void) { a = 1; say("first is here"); }
static void second(void) { b = 1; }
static void check(void) { expect(a == 1); expect(b == EXPECTED); }
const struct rockfall_test rockfall_test = {.threads = {first, second}, .check = check};
"#;

#[test]
fn a_test_is_packed_run_saved_and_resumed() {
    let folder = folder("linux-test");
    fs::write(folder.join("good.c"), TEST.replace("EXPECTED", "1")).unwrap();
    fs::write(folder.join("bad.c"), TEST.replace("EXPECTED", "2")).unwrap();
    let packed = rockfall(&folder, &["linux", "pack", "good.c", "bad.c", "-o", "test.img"]);
    assert!(packed.status.success(), "{}", text(&packed));
    let image = fs::read(folder.join("test.img")).unwrap();
    assert!(rockfall(&folder, &["linux", "pack", "good.c", "bad.c"]).status.success());
    assert_eq!(fs::read(folder.join("good.img")).unwrap(), image, "the same image every time");

    let Some(debian) = debian() else { return };
    let kernel = debian.kernel.to_str().unwrap();
    let run = |more: &[&str]| {
        let flags = [&["run", kernel, "--initramfs", "test.img", "--cpus", "2"][..], more].concat();
        rockfall(&folder, &flags)
    };
    let saved = run(&["--save", "test.snapshot"]);
    assert!(saved.status.success(), "{}", text(&saved));
    let resumed = run(&["--from", "test.snapshot"]);
    let story = text(&resumed);
    assert_eq!(resumed.status.code(), Some(1), "a failed test is a bug in the guest:\n{story}");
    for line in [
        "bad.c:6: expected b == 2",
        "rockfall: test bad: failed",
        "rockfall: test good: passed",
        "first is here",
        "the guest switched the machine off",
    ] {
        assert!(story.contains(line), "{line}\n{story}");
    }
    assert_eq!(instructions(&text(&run(&["--from", "test.snapshot"]))), instructions(&story));
    assert!(!story.contains("not modelled"), "{story}");

    // A disk that is full leaves an error and no half of a file. (A limit on the size of files stands for
    // it.)
    let limited = format!(
        "trap '' XFSZ; ulimit -f 1000; exec {} run {kernel} --initramfs test.img --cpus 2 --from test.snapshot --save full.snapshot",
        env!("CARGO_BIN_EXE_rockfall")
    );
    let full =
        Command::new("sh").current_dir(&folder).args(["-c", &limited]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(full.status.code(), Some(2), "{}", text(&full));
    assert!(text(&full).contains("cannot write full.snapshot"), "{}", text(&full));
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("full.")), "{left:?}");

    // What is not the snapshot it should be.
    let good = fs::read(folder.join("test.snapshot")).unwrap();
    let refuse = |name: &str, bytes: &[u8], more: &[&str], reason: &str| {
        fs::write(folder.join(name), bytes).unwrap();
        let output = run(&[&["--from", name][..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(reason), "{}", text(&output));
    };
    for place in [0, 9, 14, 21, 30, 45, 70, 1000, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        refuse("bad.snapshot", &bad, &[], "snapshot");
    }
    refuse("bad.snapshot", &good[..good.len() - 1], &[], "ends too early");
    refuse("bad.snapshot", b"nothing of the kind", &[], "not a snapshot");
    refuse("good.snapshot", &good, &["--append", "quiet"], "another kernel, image, command line");
    refuse("good.snapshot", &good, &["--memory", "256M"], "another kernel, image, command line");
}

#[test]
fn a_shell_is_typed_to() {
    let Some(debian) = debian() else { return };
    let folder = folder("linux-shell");
    let busybox = format!("{}=bin/busybox", debian.busybox.display());
    let packed = rockfall(&folder, &["linux", "pack", "--file", &busybox, "-o", "shell.img"]);
    assert!(packed.status.success(), "{}", text(&packed));
    let session = concat!(
        r"/bin/busybox --install -s /bin\n",
        r"export PATH=/bin; cd /tmp\n",
        r"for i in 1 2 3; do echo line $i >> list; done; wc -l < list\n",
        r"sort -r list | sed s/line/number/ | tr '\\n' ' '; echo\n",
        r"(echo child $((6 * 7)); exit 3); echo status $?\n",
        r"mkdir -p a/b; echo text > a/b/c; find a | sort | md5sum\n",
        r#"awk 'BEGIN { printf "%.4f\\n", 22 / 7 }'\n"#,
        r"dd if=/dev/zero bs=64k count=16 2> /dev/null | gzip | gunzip | wc -c\n",
        r"uname -sm; ps | grep -c '[i]nit'; exit\n",
    );
    let kernel = debian.kernel.to_str().unwrap();
    let flags =
        ["run", kernel, "--initramfs", "shell.img", "--append", "run=/bin/busybox,sh", "--type", session];
    let output = rockfall(&folder, &flags);
    let story = text(&output);
    for line in [
        "\n3\n",
        "\nnumber 3 number 2 number 1 \n",
        "\nchild 42\nstatus 3\n",
        "\n3.1429\n",
        "\n1048576\n",
        "\nLinux x86_64\n",
        "the guest switched the machine off",
    ] {
        assert!(story.contains(line), "{line}\n{story}");
    }
}

#[test]
fn what_cannot_be_packed_or_run_is_refused_with_a_reason() {
    let folder = folder("linux-bad");
    fs::write(folder.join("broken.c"), "int main(void) { return missing; }").unwrap();
    fs::write(folder.join("good.c"), "int main(void) { return 0; }").unwrap();
    fs::write(folder.join("text"), "no kernel").unwrap();
    fs::write(folder.join("image"), "no image").unwrap();
    let table: [(&[&str], &str); 9] = [
        (&["linux", "pack", "good.c", "./good.c"], "two tests are called good"),
        (&["linux", "pack"], "give a test to pack"),
        (&["linux", "pack", "good.c", "--module", "ext4"], "say with --kernel which kernel"),
        (&["linux", "pack", "good.c", "--kernel", "9.9", "--kernels", "none"], "kernel 9.9 is not here"),
        (&["linux", "pack", "absent.c"], "absent.c"),
        (&["linux", "pack", "broken.c"], "missing"),
        (&["linux", "pack", "broken.c", "--file", "text=../up"], "no place for a file"),
        (&["linux", "pack", "-o", "nowhere/x.img"], "cannot write nowhere/x.img"),
        (&["run", "text", "--initramfs", "image"], "not a kernel"),
    ];
    for (arguments, reason) in table {
        let output = rockfall(&folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(reason), "{arguments:?}: {}", text(&output));
    }
}

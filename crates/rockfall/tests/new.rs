//! `rockfall new` on folders that look like those of courses: what is built, written and said; and a kernel that is older
//! than its sources is noticed.

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
    write(&folder, "src/threads/Makefile", b"all:\n\t@echo no such register; false\n");
    let (code, text) = rockfall(&folder, &["new", "pintos", "."]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no such register") && text.contains("fails:"), "{text}");
    let (code, text) = rockfall(&folder, &["new", "xv6", "."]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("there is no kernel.ld"), "{text}");
}

#[test]
fn a_folder_of_xv6() {
    let folder = folder("xv6");
    write(&folder, "kernel.ld", b"");
    let makefile =
        b"UPROGS=\\\n\t_init\\\n\t_forktest\\\n\t_sh\\\n\nkernelmemfs:\n\tprintf k > kernelmemfs\n";
    write(&folder, "Makefile", makefile);
    let (code, text) = rockfall(&folder, &["new", "xv6", ".", "-o", "made"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Tests: forktest\n") && text.contains("kernelmemfs --programs "), "{text}");
    assert!(folder.join("made/xv6.toml").exists() && folder.join("made/cc").exists());
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
    std::thread::sleep(std::time::Duration::from_millis(20));
    write(&folder, "old.c", source.as_bytes());
    assert!(run().contains("old.c was changed after kernel was built"), "{}", run());
}

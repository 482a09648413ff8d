//! `rockfall run` as its users meet it: small guests in, console, summary and exit code out.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use expect_test::{Expect, expect};

/// Where the code of the small kernels lies.
const START: u32 = 0x10_0000;

/// A 32-bit executable whose only segment is `code`.
fn elf(code: &[u8]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([2, 0, 3, 0]);
    for word in [1, START, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for half in [52, 32, 1, 0, 0, 0] {
        file.extend(u16::to_le_bytes(half));
    }
    let size = code.len() as u32;
    for word in [1, 0x80, START, START, size, size, 7, 1] {
        file.extend(u32::to_le_bytes(word));
    }
    file.resize(0x80, 0);
    file.extend(code);
    file
}

/// The first sector of a disk that starts with `code`.
fn boot_sector(code: &[u8]) -> Vec<u8> {
    let mut sector = code.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// 32-bit code: sends `text` through the serial port.
fn send(text: &str) -> Vec<u8> {
    let mut code = vec![0xba, 0xf8, 0x03, 0, 0]; // mov edx, 0x3f8
    code.extend(text.bytes().flat_map(|byte| [0xb0, byte, 0xee])); // mov al, byte; out dx, al
    code
}

/// 32-bit code: switches the machine off.
const OFF: [u8; 11] = [0xba, 0x04, 0x06, 0, 0, 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef];

struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Runs the command; what came out, without paths and times, and the exit code last.
    fn check(&self, arguments: &[&str], expected: &Expect) {
        let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the command starts");
        let text = format!(
            "{}{}exit code {}\n",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            output.status.code().unwrap_or(-1)
        );
        let folder = format!("{}/", self.0.display());
        let lines = text.lines().map(|line| match line.split_once(" instructions in ") {
            Some((count, _)) => format!("{count} instructions\n"),
            None => format!("{}\n", line.replace(&folder, "")),
        });
        expected.assert_eq(&lines.collect::<String>());
    }
}

#[test]
fn a_kernel_speaks_and_switches_off() {
    let files = Files::new("off");
    let kernel = files.file("kernel", &elf(&[send("Hello\n"), OFF.to_vec()].concat()));
    files.check(
        &["run", &kernel],
        &expect![[r#"
            Hello
            rockfall: the guest switched the machine off
            rockfall: 16 instructions
            exit code 0
        "#]],
    );
}

#[test]
fn the_screen_is_the_console_of_a_kernel_without_a_serial_port() {
    let files = Files::new("screen");
    // mov dword [0xb8000], "H" and "i" in grey; cli; hlt
    let code = [0xc7, 0x05, 0x00, 0x80, 0x0b, 0x00, b'H', 7, b'i', 7, 0xfa, 0xf4];
    let kernel = files.file("kernel", &elf(&code));
    files.check(
        &["run", &kernel],
        &expect![[r#"
            Hi
            rockfall: all processors are halted and nothing can wake them
            rockfall: 3 instructions
            exit code 0
        "#]],
    );
}

#[test]
fn a_triple_fault_shows_registers_and_branches() {
    let files = Files::new("triple");
    // mov eax, 0x1234; jmp 16 further on; there: ud2
    let mut code = vec![0xb8, 0x34, 0x12, 0, 0, 0xeb, 0x10];
    code.resize(7 + 16, 0x90);
    code.extend([0x0f, 0x0b]);
    let kernel = files.file("kernel", &elf(&code));
    files.check(
        &["run", &kernel],
        &expect![[r#"
        rockfall: triple fault on cpu0: an exception, its handler and the double fault handler all failed
        cpu0:
          eax 00001234  ecx 00000000  edx 00000000  ebx 00000000
          esp 00070000  ebp 00000000  esi 00000000  edi 00000000
          eip 00100017  eflags 00000002  cr0 00000011  cr2 00000000  cr3 00000000  cr4 00000000  ring 0
          cs 0008  ss 0010  ds 0010  es 0010  fs 0010  gs 0010
          gdt 000f0800+0017  idt 00000000+ffff  tr 0000
        last branches:
          00100005 -> 00100017
        rockfall: 3 instructions
        exit code 1
    "#]],
    );
}

#[test]
fn what_the_machine_lacks_is_named_and_not_skipped() {
    let files = Files::new("unsupported");
    // push 0, six times; push flags with virtual-8086 mode; push 0, twice; iret
    let mut code = [0x6a, 0].repeat(6);
    code.extend([0x68, 0x02, 0x00, 0x02, 0x00, 0x6a, 0, 0x6a, 0, 0xcf]);
    let kernel = files.file("kernel", &elf(&code));
    files.check(
        &["run", &kernel],
        &expect![[r#"
            rockfall: cpu0: unsupported: virtual-8086 mode at 0x00100015: cf  iret
            cpu0:
              eax 00000000  ecx 00000000  edx 00000000  ebx 00000000
              esp 0006ffdc  ebp 00000000  esi 00000000  edi 00000000
              eip 00100015  eflags 00000002  cr0 00000011  cr2 00000000  cr3 00000000  cr4 00000000  ring 0
              cs 0008  ss 0010  ds 0010  es 0010  fs 0010  gs 0010
              gdt 000f0800+0017  idt 00000000+ffff  tr 0000
            rockfall: 9 instructions
            exit code 3
        "#]],
    );
}

#[test]
fn an_endless_kernel_runs_as_long_as_it_may() {
    let files = Files::new("endless");
    let kernel = files.file("kernel", &elf(&[0xeb, 0xfe]));
    files.check(
        &["run", &kernel, "--instructions", "12345"],
        &expect![[r#"
            rockfall: stopped after the given number of instructions
            rockfall: 12,345 instructions
            exit code 0
        "#]],
    );
}

#[test]
fn a_boot_sector_talks_to_the_bios() {
    let files = Files::new("sector");
    let code = [
        0xb4, 0x0e, 0xb0, b'?', 0xcd, 0x10, // mov ah, 0x0e; mov al, '?'; int 0x10
        0xb4, 0x00, 0xcd, 0x16, // mov ah, 0; int 0x16
        0xb4, 0x0e, 0xcd, 0x10, // mov ah, 0x0e; int 0x10
        0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // mov dx, 0x604; mov ax, 0x2000; out dx, ax
    ];
    let image = files.file("disk.img", &boot_sector(&code));
    files.check(
        &["run", &image, "--type", "k", "--screen"],
        &expect![[r#"
            ?k
            --------------------------------------------------------------------------------
            ?k
            --------------------------------------------------------------------------------
            rockfall: the guest switched the machine off
            rockfall: 121 instructions
            exit code 0
        "#]],
    );
}

#[test]
fn what_cannot_be_started_is_refused_with_a_reason() {
    let files = Files::new("refused");
    let good = elf(&[0xf4; 64]);
    let truncated = files.file("truncated", &good[..0xa0]);
    let text = files.file("text", b"hello, world\n");
    let movable = files.file("movable", &{
        let mut file = good.clone();
        // ET_DYN, as of a kernel that was linked as today's compilers do by themselves.
        file[16] = 3;
        file
    });
    let high = files.file("high", &{
        let mut file = good.clone();
        file[52 + 12..52 + 16].copy_from_slice(&0x0800_0000u32.to_le_bytes());
        file
    });
    let kernel = files.file("kernel", &good);
    let missing = files.0.join("missing").display().to_string();
    for (arguments, expected) in [
        (
            &["run", &missing][..],
            expect![[r#"
            rockfall: cannot read missing: No such file or directory (os error 2)
            exit code 2
        "#]],
        ),
        (
            &["run", &truncated],
            expect![[r#"
            rockfall: cannot start truncated: the file is truncated: a segment reaches to byte 192, but the file has 160
            exit code 2
        "#]],
        ),
        (
            &["run", &text],
            expect![[r#"
                rockfall: cannot start text: not a kernel: neither an ELF file, nor a Linux image, nor a Multiboot header in the first 8 KiB, nor a boot sector that ends in 55 AA
                exit code 2
            "#]],
        ),
        (
            &["run", &movable],
            expect![[r#"
                rockfall: cannot start movable: the ELF file is linked to run at any address, as today's compilers do by themselves, and nobody would move it to where it runs; build it with -fno-pie and link it with -no-pie
                exit code 2
            "#]],
        ),
        (
            &["run", &high],
            expect![[r#"
            rockfall: cannot start high: a segment of the kernel needs memory 0x8000000 to 0x8000040, but the machine has 64 MiB; give it more with --memory
            exit code 2
        "#]],
        ),
        (
            &["run", &kernel, "--append", "x"],
            expect![[r#"
                rockfall: --append is for Linux or for Multiboot kernels, and kernel is not one: ELF kernel
                exit code 2
            "#]],
        ),
        (
            &["run", &kernel, "--type", "\\q"],
            expect![[r#"
            rockfall: --type does not know \q
            exit code 2
        "#]],
        ),
    ] {
        files.check(arguments, &expected);
    }
}

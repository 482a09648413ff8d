//! Programs in a guest's memory are known by their files: what kernels leave out of a copy does not count,
//! and any other code or constant does.

use guest::elf::image::Image;
use guest::hooks::program::differs;
use machine::Machine;
use machine::board::BoardConfig;
use std::path::Path;
use std::process::Command;
use trace::{CpuId, VirtAddr};

const PROGRAM: &str = r#"
const char greeting[] = "hello";
int counter = 7;
int start(void) { return greeting[counter & 3]; }
"#;

/// The program as it is linked, and as it is put on a RAM disk, without symbols and debugging information.
fn whole_and_stripped() -> [Vec<u8>; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("program.c"), PROGRAM).expect("written");
    let run = |command: &str, arguments: &str| {
        let mut command = Command::new(command);
        command.args(arguments.split(' ')).current_dir(&folder);
        assert!(command.status().expect("it runs").success(), "{arguments}");
    };
    // The linker puts the file's headers into memory, below the code.
    run(
        "gcc",
        "-m32 -g -O1 -ffreestanding -nostdlib -static -fno-pic -no-pie -fno-stack-protector -o whole program.c \
         -Wl,-estart,-Ttext-segment=0x100000,-z,noseparate-code,-z,noexecstack",
    );
    run("strip", "-o stripped whole");
    ["whole", "stripped"].map(|name| std::fs::read(folder.join(name)).expect("there"))
}

/// A machine into whose memory a kernel has loaded the file.
fn loaded(file: &[u8]) -> Machine {
    let mut machine = Machine::new(BoardConfig { memory_bytes: 16 << 20, ..BoardConfig::default() });
    for segment in &Image::parse("stripped", file).expect("a program").segments {
        assert!(machine.write_virt(CpuId(0), segment.addr, &segment.bytes));
    }
    machine
}

#[test]
fn a_stripped_copy_is_the_program_and_another_one_is_not() {
    let [whole, stripped] = whole_and_stripped();
    let image = Image::parse("program", &whole).expect("a program");
    let mut machine = loaded(&stripped);
    let mut header = [0; 52];
    assert!(machine.read_virt(CpuId(0), VirtAddr(0x10_0000), &mut header));
    assert!(header[..4] == whole[..4] && header[..] != whole[..52], "the headers are in memory, and others");
    assert_eq!(differs(&machine, CpuId(0), &image), None);

    for (name, is_other) in [("counter", false), ("greeting", true), ("start", true)] {
        let at = image.symbol(name).expect("a symbol").addr;
        let mut byte = [0];
        assert!(machine.read_virt(CpuId(0), at, &mut byte));
        assert!(machine.write_virt(CpuId(0), at, &[byte[0] ^ 1]));
        assert_eq!(differs(&machine, CpuId(0), &image), is_other.then_some(at), "{name}");
        assert!(machine.write_virt(CpuId(0), at, &byte));
    }
}

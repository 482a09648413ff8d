//! What is learned from Debian's kernel image, and that damaged images are refused with a sentence.
//!
//! More rounds of damage: `FUZZ_ROUNDS=2000 cargo test --release -p guest --test linux`.

use guest::elf::image::Image;
use guest::hooks::annotation::{Annotation, decode};
use guest::linux::btf::Btf;
use guest::linux::lines::Lines;
use guest::linux::running::Running;
use guest::linux::stack::{self, End};
use guest::linux::{Linux, kallsyms};
use guest::view::{View, registers};
use guests::linux::{Debian, Pack, sources};
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format, Module};
use machine::{Events, Kinds, Machine, Stop, Turns};
use std::sync::{Arc, OnceLock};
use trace::{CpuId, Resolve as _, VirtAddr};

fn debian() -> Option<Arc<Linux>> {
    static KERNEL: OnceLock<Option<Arc<Linux>>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| {
        let path = Debian::find()?.kernel;
        let file = std::fs::read(&path).expect("it was found");
        Some(Linux::parse("vmlinuz", &file).unwrap_or_else(|error| panic!("{error}")))
    });
    if kernel.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    kernel.clone()
}

#[test]
fn symbols_of_debian() {
    let Some(linux) = debian() else { return };
    assert!(linux.banner.contains("Debian"), "{}", linux.banner);
    assert!(linux.release().ends_with("-amd64"), "{}", linux.release());
    assert!(linux.version() >= (6, 1), "{:?}", linux.version());
    assert!(linux.symbols.len() > 50_000, "{}", linux.symbols.len());

    // Code is where the image has code, and every function's own address leads back to it or to an alias.
    let mut functions = 0;
    for symbol in linux.symbols.iter().filter(|symbol| symbol.is_code()) {
        functions += 1;
        let found = linux.symbol_at(symbol.addr);
        assert_eq!(found.map(|found| found.addr), Some(symbol.addr), "{}", symbol.name);
    }
    assert!(functions > 30_000, "{functions}");
    for name in ["vfs_write", "schedule", "do_exit", "kfree"] {
        let addr = linux.address(name).unwrap_or_else(|| panic!("{name}"));
        assert!(linux.sections.is_code(addr), "{name}");
        let frames = linux.frames(addr.offset(5));
        assert_eq!(frames[0].function.as_deref(), Some(name));
    }
    let task = linux.address("init_task").expect("data symbols are there too");
    assert_eq!(linux.data(task.offset(16)).as_deref(), Some("init_task+0x10"));
    assert_eq!(linux.data(VirtAddr(0xffff_8880_0000_0000)), None, "not of the image");
    assert!(linux.symbols.nearest("vfs_wirte").contains(&"vfs_write".to_owned()));
}

#[test]
fn what_is_no_kernel_with_symbols_is_refused() {
    let refused = |bytes: &[u8]| Linux::parse("file", bytes).expect_err("it is none").to_string();
    assert_eq!(refused(b"text"), "file: not a 64-bit x86 kernel, or one that is damaged or cut off");
    let own = std::fs::read(std::env::current_exe().expect("a test is a program")).expect("it can be read");
    assert!(refused(&own).contains("CONFIG_KALLSYMS"), "{}", refused(&own));
}

/// SplitMix64.
fn random(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ z >> 31) * bound as u128) >> 64) as usize
}

/// Changes a few bytes, or cuts some off.
fn damage(bytes: &mut Vec<u8>, within: std::ops::Range<usize>, state: &mut u64) {
    for _ in 0..=random(state, 4) {
        let at = (within.start + random(state, within.len())).min(bytes.len().saturating_sub(16));
        match random(state, 5) {
            0 => bytes[at] ^= 1 << random(state, 8),
            1 => bytes[at..at + 8].fill(0xff),
            2 => bytes[at..at + 8].fill(0),
            3 => (at..at + 16).for_each(|at| bytes[at] = random(state, 256) as u8),
            _ => drop(bytes.drain(at..at + random(state, 16))),
        }
    }
}

fn rounds(default: u64) -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_tables_of_symbols() {
    let Some(linux) = debian() else { return };
    let constants = linux.sections.section(".rodata").expect("a kernel has constants").bytes;
    let count = kallsyms::decode(constants).expect("just read").len();
    let digits = constants.windows(8).position(|window| window == b"0\x001\x002\x003\x00").expect("tokens");
    let (tokens, markers) = (digits - 512..digits + 2048, digits - 4096..digits);
    let names = digits.saturating_sub(1 << 20)..digits;
    for seed in 0..rounds(60) {
        let mut state = seed;
        let mut bytes = constants.to_vec();
        let within = [&tokens, &markers, &names, &(0..constants.len())][random(&mut state, 4)].clone();
        damage(&mut bytes, within, &mut state);
        if let Some(entries) = kallsyms::decode(&bytes) {
            assert_eq!(entries.len(), count, "the markers agree with nothing else");
        }
    }
}

#[test]
fn types_of_debian() {
    let Some(linux) = debian() else { return };
    let btf = linux.btf().expect("Debian's kernel has BTF");
    assert_eq!(btf.size("list_head"), Some(16));
    assert_eq!(btf.offset("list_head", "prev"), Some(8));
    let file = btf.types.structure("file").expect("a struct");
    let path = btf.offset("file", "f_path.dentry").expect("nested members");
    assert_eq!(btf.types.path(file, path), ".f_path.dentry");
    let parameters = btf.parameters("vfs_write").expect("a function");
    let text: Vec<String> = parameters
        .iter()
        .map(|parameter| format!("{} {}", btf.types.display(parameter.ty), parameter.name))
        .collect();
    assert_eq!(text, ["struct file * file", "char * buf", "size_t count", "loff_t * pos"]);
    let runqueue = btf.per_cpu("runqueues").expect("a per-CPU variable");
    assert_eq!(btf.types.display(runqueue), "struct rq");
    assert!(btf.enumerator("pageflags", "PG_locked").is_some());
}

#[test]
fn warnings_of_debian() {
    let Some(linux) = debian() else { return };
    let all: Vec<_> = linux.bugs.iter().collect();
    assert!(all.len() > 5_000, "{}", all.len());
    for (addr, bug) in &all {
        assert_eq!(
            linux.sections.at(*addr, 2),
            Some(&[0x0f, 0x0b][..]),
            "{}:{} is no UD2",
            bug.file,
            bug.line
        );
        let named = [".c", ".h", ".S"].iter().any(|ending| bug.file.ends_with(ending));
        assert!(named && bug.line > 0, "{}:{}", bug.file, bug.line);
    }
    let exit = all
        .iter()
        .filter(|(addr, _)| linux.function_at(*addr).is_some_and(|function| &*function.name == "do_exit"));
    assert!(exit.map(|(_, bug)| &*bug.file).any(|file| file.ends_with("kernel/exit.c")));
}

#[test]
fn damaged_types() {
    let Some(linux) = debian() else { return };
    let section = linux.sections.section(".BTF").expect("Debian's kernel has BTF").bytes;
    for seed in 0..rounds(30) {
        let mut state = seed;
        let mut bytes = section.to_vec();
        let within = if seed % 3 == 0 { 0..64 } else { 0..section.len() / 2 };
        damage(&mut bytes, within, &mut state);
        if let Some(btf) = Btf::parse(&bytes) {
            for name in ["task_struct", "file", "dentry", "module", "page"] {
                let Some(ty) = btf.types.structure(name) else { continue };
                let _ = (btf.types.size(ty), btf.types.path(ty, 123), btf.types.member_names(ty).len());
            }
            let _ = (btf.parameters("vfs_write"), btf.offset("task_struct", "comm"));
        }
    }
}

const CPUS: u8 = 2;
const TEST: &str = "directory";

/// Boots to where the threads of a test stand before their bodies, with the module `loop` loaded.
fn booted(debian: &Debian) -> (Machine, Turns, Arc<Image>) {
    let tests = sources("tests").expect("they are ours");
    let image = Pack { tests, modules: vec![debian.module.clone()], files: Vec::new() };
    let image = image.build().unwrap_or_else(|error| panic!("{error}"));
    let program = guests::cpio::file(&image, &format!("tests/{TEST}")).expect("it was packed");
    let program = Image::parse(TEST, program).unwrap_or_else(|error| panic!("{error}"));
    let config = BoardConfig { cpus: CPUS, memory_bytes: 256 << 20, ..BoardConfig::default() };
    let options = BootOptions {
        command_line: format!("{} test={TEST}", boot::linux::default_command_line(config.clock)),
        modules: vec![Module { command_line: String::new(), bytes: image }],
    };
    let mut machine = Machine::new(config);
    let file = std::fs::read(&debian.kernel).expect("it was found");
    let Machine { cpus, memory, board, .. } = &mut machine;
    let format = Format::detect(&file).expect("a kernel");
    boot::load(format, &file, &options, memory, &mut cpus[0], board)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut turns = Turns::default();
    let mut events = Events::off();
    while turns.held() < u32::from(CPUS) {
        let turn = turns.take(&mut machine, 100_000_000, Kinds::HYPERCALL, &mut events);
        let turn = turn.expect("a processor that may run");
        assert!(turn.goes_on() || turn.stop == Stop::Hypercall, "{:?}", turn.stop);
        if turn.stop == Stop::Hypercall {
            let view = View { machine: &machine, cpu: turn.cpu };
            let annotation = decode(&registers(&machine, turn.cpu), &view);
            if matches!(annotation, Some(Annotation::TestStart { .. })) {
                turns.hold(turn.cpu);
            }
        }
    }
    (machine, Turns::default(), program)
}

#[test]
fn a_running_kernel_is_seen_from_outside() {
    let (Some(linux), Some(debian)) = (debian(), Debian::find()) else { return };
    let (mut machine, mut turns, program) = booted(&debian);
    hostile_memory(&linux, &machine);
    let running = Running::learn(&linux, CPUS, &View { machine: &machine, cpu: CpuId(0) });
    fn view(machine: &Machine, cpu: CpuId) -> View<'_> {
        View { machine, cpu }
    }

    // Who runs, which module is where, and what is at some addresses.
    for cpu in (0..CPUS).map(CpuId) {
        let task = running.current_task(cpu, &view(&machine, cpu)).expect("somebody runs");
        assert_eq!(task.name, TEST, "{task}");
        assert!(task.pid > 1 && task.process > 1, "{task:?}");
        let state = running.linux.btf().and_then(|btf| btf.offset("task_struct", "flags")).expect("a member");
        let text = running.describe(task.addr.offset(state), &view(&machine, cpu));
        assert_eq!(text.as_deref(), Some("task_struct.flags"));
        let queue = running.per_cpu("runqueues", cpu).expect("a per-CPU variable");
        let text =
            running.data(queue.offset(running.linux.btf().unwrap().offset("rq", "nr_running").unwrap()));
        assert_eq!(text, Some(format!("runqueues.nr_running of {cpu}")));
    }
    let module = running.modules.iter().find(|module| module.name == "loop").expect("it was loaded");
    let function = module.symbols.iter().find(|symbol| &*symbol.name == "lo_ioctl").expect("its symbols");
    assert!(module.text.contains(&function.addr.0) && !module.orc.is_empty());
    assert_eq!(running.frames(function.addr.offset(9))[0].function.as_deref(), Some("lo_ioctl [loop]"));

    // Every stack of the test, wherever the kernel is, leads to its root.
    let mut events = Events::off();
    let (mut stacks, mut deepest, mut through_interrupts, mut to_main) = (0, 0, 0, 0);
    for _ in 0..6_000 {
        let Some(turn) = turns.take(&mut machine, 977, Kinds::HYPERCALL, &mut events) else { break };
        if turn.stop == Stop::PowerOff {
            break;
        }
        for cpu in (0..CPUS).map(CpuId) {
            let (now, view) = (registers(&machine, cpu), view(&machine, cpu));
            if now.ring != 0 {
                continue;
            }
            let (activations, end) = stack::activations(&running, &now, &view);
            let text = || stack::trace(&running, None, &now, &view);
            assert_eq!(end, End::Root, "{cpu} at {:#x}: {:#?}", now.pc, text());
            stacks += 1;
            deepest = deepest.max(activations.len());
            let interrupted = activations[1..].iter().any(|frame| frame.exact && frame.registers.ring == 0);
            through_interrupts += usize::from(interrupted);
            let from_user = activations.last().is_some_and(|frame| frame.registers.ring == 3);
            let current = running.current_task(cpu, &view);
            if from_user && current.is_some_and(|task| task.name == TEST) {
                let whole = stack::trace(&running, Some(&program), &now, &view);
                to_main += usize::from(whole.len() > activations.len());
            }
        }
    }
    assert!(
        stacks > 1_000 && deepest > 10 && through_interrupts > 0 && to_main > 100,
        "{stacks} stacks, {deepest} deep, {through_interrupts} through interrupts, {to_main} into the program"
    );
}

/// Memory that lies now and then gives fewer answers, no panic.
fn hostile_memory(linux: &Arc<Linux>, machine: &Machine) {
    let view = View { machine, cpu: CpuId(0) };
    struct Noise<'a>(View<'a>, std::cell::Cell<u64>);
    impl guest::state::Memory for Noise<'_> {
        fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
            guest::state::Memory::read(&self.0, addr, buffer)?;
            let mut state = self.1.get();
            if random(&mut state, 8) == 0 && !buffer.is_empty() {
                let at = random(&mut state, buffer.len());
                buffer[at] ^= 1 << random(&mut state, 8);
            }
            self.1.set(state);
            Some(())
        }
    }
    for seed in 0..rounds(40) {
        let noise = Noise(view, std::cell::Cell::new(seed));
        let running = Running::learn(linux, CPUS, &noise);
        let now = registers(machine, CpuId(0));
        let task = running.current_task(CpuId(0), &noise);
        let _ = stack::trace(&running, None, &now, &noise);
        let addr = task.map_or(VirtAddr(now.general[4]), |task| task.addr);
        let _ = (running.describe(addr, &noise), running.describe(VirtAddr(now.pc), &noise));
    }
}

/// The tables of lines alone tell what all of the debugging information tells.
#[test]
fn lines_of_a_program() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lines");
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    let (source, program) = (folder.join("lines.c"), folder.join("lines"));
    let text = "int one(int x)\n{\n    return x + 1;\n}\n\nint main(void)\n{\n    return one(41) - 42;\n}\n";
    std::fs::write(&source, text).expect("it can be written");
    let flags = ["-g", "-O0", "-no-pie", "-gz=none", "-o"];
    let built = std::process::Command::new("gcc").args(flags).arg(&program).arg(&source).status();
    assert!(built.is_ok_and(|status| status.success()));
    let bytes = std::fs::read(&program).expect("just built");
    let lines = Lines::parse(&bytes).expect("it has debugging information");
    let image = Image::parse("lines", &bytes).expect("an ELF file");
    let mut compared = 0;
    for name in ["one", "main"] {
        let function = image.get(image.function(name)[0]);
        for pc in function.range() {
            let frame = &image.frames(VirtAddr(pc))[0];
            let (file, line) = lines.at(VirtAddr(pc)).unwrap_or_else(|| panic!("{pc:#x}"));
            assert!(file.ends_with("lines.c"), "{file}");
            assert_eq!(frame.line, Some(line), "{pc:#x}");
            compared += 1;
        }
    }
    assert!(compared > 20);
    assert_eq!(lines.at(VirtAddr(1)), None);
    assert!(Lines::parse(b"text").is_err_and(|why| why.contains("not an ELF file")));
    for seed in 0..rounds(300) {
        let mut damaged = bytes.clone();
        let all = 0..bytes.len();
        damage(&mut damaged, all, &mut { seed });
        let _ = Lines::parse(&damaged).map(|lines| lines.at(VirtAddr(0x40_1130)).is_some());
    }
}

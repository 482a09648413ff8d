//! The unwinder against a shadow stack, at every single instruction of programs compiled here and now.

mod support;

use guest::elf::image::{Image, Programs, Space};
use guest::hooks::expression::{Expression, Inputs, Scope};
use guest::stack;
use guest::state::{Memory, Registers};
use machine::{Events, Machine, StopSet};
use std::sync::Arc;
use trace::{CpuId, VirtAddr};

const CPU: CpuId = CpuId(0);
const STACK_TOP: u64 = 0x9_0000;

struct Inside<'a>(&'a Machine);

impl Memory for Inside<'_> {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        self.0.read_virt(CPU, addr, buffer).then_some(())
    }
}

fn registers(machine: &Machine) -> Registers {
    let cpu = machine.cpu(CPU);
    let mut registers = Registers { pc: cpu.rip, ..Registers::default() };
    registers.general[..16].copy_from_slice(&cpu.regs);
    registers
}

fn load(image: &Image) -> Machine {
    let mut machine = Machine::flat32(4 << 20);
    for segment in &image.segments {
        assert!(machine.write_virt(CPU, segment.addr, &segment.bytes));
    }
    let cpu = machine.cpu_mut(CPU);
    cpu.rip = image.entry.0;
    cpu.regs[guest::state::SP] = STACK_TOP - 16;
    machine
}

/// Runs the program until it reads from port 0x99 or `limit` instructions are over, comparing at each.
fn compare(image: &Arc<Image>, limit: usize) -> (usize, usize) {
    let space = Programs::new(image.clone()).in_program(None);
    let mut machine = load(image);
    let mut shadow: Vec<u64> = Vec::new();
    let mut events = Events::default();
    let one = StopSet::after(1);
    let (mut compared, mut deepest) = (0, 0);
    for _ in 0..limit {
        let before = registers(&machine);
        let mut bytes = [0; 2];
        Inside(&machine).read(VirtAddr(before.pc), &mut bytes).unwrap();
        if bytes[0] == 0xf4 {
            break; // hlt ends the program
        }
        check(&space, &before, &machine, &shadow);
        compared += 1;
        deepest = deepest.max(shadow.len());
        machine.run(CPU, &one, &mut events);
        let after = registers(&machine);
        let sp = after.general[guest::state::SP];
        match bytes {
            [0xe8, _] => shadow.push(Inside(&machine).read_uint(VirtAddr(sp), 4).unwrap()),
            [0xff, modrm] if modrm >> 3 & 7 == 2 => {
                shadow.push(Inside(&machine).read_uint(VirtAddr(sp), 4).unwrap());
            }
            [0xc2 | 0xc3, _] | [0xf3, 0xc3] => {
                assert_eq!(shadow.pop(), Some(after.pc), "the shadow itself is right");
            }
            _ => {}
        }
    }
    (compared, deepest)
}

fn check(space: &Space, registers: &Registers, machine: &Machine, shadow: &[u64]) {
    let found = stack::activations(space, registers, &Inside(machine));
    let found: Vec<u64> = found.iter().map(|activation| activation.registers.pc).collect();
    let mut expected = vec![registers.pc];
    expected.extend(shadow.iter().rev());
    let name = |pc: &u64| {
        let frames = space.frames_at(VirtAddr(*pc), VirtAddr(pc - 1));
        format!("{pc:#x} {:?}", frames[0].function)
    };
    assert_eq!(
        found.iter().map(name).collect::<Vec<_>>(),
        expected.iter().map(name).collect::<Vec<_>>(),
        "at {:#x}",
        registers.pc
    );
}

const PROGRAM: &str = r#"
typedef int (*fn)(int);
volatile int sink;
int leaf(int x) { return x * 3 + 1; }
__attribute__((noinline)) int recursive(int n) { if (n <= 0) return leaf(sink); return recursive(n - 1) + recursive(n - 2); }
__attribute__((noinline)) int locals(int n) {
    volatile char buffer[300]; int total = 0;
    for (int i = 0; i < 20; i++) { buffer[i * n % 300] = i; total += buffer[(i * 7) % 300]; if (total > 900) return leaf(total); }
    switch (n) { case 1: return leaf(1); case 2: return total; case 3: sink++; return leaf(4) + total; default: return sink; }
}
__attribute__((noinline)) int aligned(int n) {
    __attribute__((aligned(64))) volatile int a[16]; a[n & 15] = n; return leaf(a[3]) + locals(n);
}
__attribute__((noinline)) int dynamic(int n) {
    volatile char *p = __builtin_alloca(n + 5); p[n] = 1; return leaf(p[n]) + locals(n & 3);
}
__attribute__((noinline)) int through(fn f, int n) { return f(n) + 1; }
__attribute__((noinline)) int tail(int n) { return recursive(n & 3); }
__attribute__((noinline)) long long wide(long long a, int b, char c, long long d) { return a * b + c - (d >> (b & 7)); }
__attribute__((noinline, noreturn)) void stop(void) { for (;;) asm volatile("hlt"); }
__attribute__((noinline)) void many(int a, int b, int c, int d, int e, int f) { sink += a + b + c + d + e + f; if (sink == 123456789) stop(); }
__attribute__((noinline, stdcall)) int pops(int a, int b, int c) { return leaf(a) + recursive(b & 1) * c; }
__attribute__((noinline, fastcall)) int pops_some(int a, int b, int c) { return leaf(c) + a * b; }
struct wide { int words[6]; };
__attribute__((noinline)) struct wide returned(int n) { struct wide w = { { leaf(n), n } }; return w; }
__attribute__((noinline)) int after_struct(int n) { struct wide w = returned(n); return leaf(w.words[1]) + w.words[0]; }
__attribute__((noinline)) int after_pops(int n) { int a = pops(n, n, 3); a += pops_some(a, 2, 5); return leaf(a) + a; }
int asm_leaf(int);
int asm_saves(int);
asm(".globl asm_leaf\n.type asm_leaf,@function\nasm_leaf:\n movl 4(%esp),%eax\n movl 4(%esp),%ecx\n addl %ecx,%eax\n ret\n.size asm_leaf,.-asm_leaf\n"
    ".globl asm_saves\n.type asm_saves,@function\nasm_saves:\n pushal\n pushfl\n subl $24,%esp\n movl 64(%esp),%eax\n movl %eax,(%esp)\n call asm_leaf\n"
    " testl %eax,%eax\n jz 1f\n incl sink\n1: addl $24,%esp\n popfl\n popal\n movl $5,%eax\n ret\n.size asm_saves,.-asm_saves\n");
void start(void) {
    for (int i = 0; i < 5; i++) {
        sink += recursive(i) + locals(i) + aligned(i) + dynamic(i * 10) + through(leaf, i) + through(tail, i) + after_pops(i) + after_struct(i);
        sink += (int)wide(i, 3, 4, 5) + asm_leaf(i) + asm_saves(i);
        many(i, i, i, i, i, i);
    }
    stop();
}
"#;

#[test]
fn every_instruction_has_the_right_stack() {
    for (name, flags) in [
        ("debug_frame, no frame pointer", &["-g", "-O2", "-fno-asynchronous-unwind-tables"][..]),
        ("eh_frame, no frame pointer", &["-O2", "-fomit-frame-pointer"]),
        ("eh_frame, -O1", &["-g", "-O1"]),
        (
            "nothing but frame pointers",
            &["-O2", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer"],
        ),
        (
            "nothing but frame pointers, -O0",
            &["-O0", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer"],
        ),
        ("nothing at all", &["-O2", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"]),
        ("nothing at all, small", &["-Os", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"]),
        ("nothing at all, -O3", &["-O3", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"]),
        ("nothing at all, -Og", &["-Og", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"]),
        ("eh_frame, -O3", &["-g", "-O3"]),
        ("eh_frame, -O0", &["-g", "-O0"]),
        (
            "nothing at all, branches marked, room for arguments kept",
            &[
                "-O2",
                "-fno-asynchronous-unwind-tables",
                "-fomit-frame-pointer",
                "-fcf-protection=branch",
                "-maccumulate-outgoing-args",
            ],
        ),
        (
            "nothing but frame pointers, branches marked",
            &["-O2", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer", "-fcf-protection=branch"],
        ),
    ] {
        let image = support::image("program.c", PROGRAM, flags);
        let (compared, deepest) = compare(&image, 30_000);
        assert!(compared > 3_000 && deepest > 3, "{name}: {compared} {deepest}");
    }
}

/// The bundled kernel before its first instruction, and its programs.
fn boot_programs() -> (Machine, Arc<Image>, Programs) {
    let out =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stacks-{}", std::process::id()));
    let built = guests::Build::default().image(&out).unwrap();
    let file = std::fs::read(&built.kernel).unwrap();
    let image = Image::parse("kernel", &file).unwrap();
    let mut programs = Programs::new(image.clone());
    for entry in std::fs::read_dir(&built.programs).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        programs.add(name, Image::parse(name, &std::fs::read(&path).unwrap()).unwrap());
    }
    std::fs::remove_dir_all(&out).unwrap();
    let mut machine =
        Machine::new(machine::board::BoardConfig { memory_bytes: 32 << 20, ..Default::default() });
    let options = machine::boot::BootOptions {
        command_line: "kernel run=life_test tick=400".into(),
        modules: Vec::new(),
    };
    let Machine { cpus, memory, board, .. } = &mut machine;
    let format = machine::boot::Format::detect(&file).unwrap();
    machine::boot::load(format, &file, &options, memory, &mut cpus[0], board).unwrap();
    (machine, image, programs)
}

/// Which program is in which address space, by the functions that make one.
struct Spaces {
    load: VirtAddr,
    copy: VirtAddr,
    known: Vec<(u64, String)>,
    /// A function that makes one was entered: where it returns to, the stack pointer, and the program.
    pending: Option<(u64, u64, String)>,
}

impl Spaces {
    fn program(&self, cr3: u64) -> Option<String> {
        self.known.iter().rev().find(|(directory, _)| *directory == cr3).map(|(_, name)| name.clone())
    }

    /// Looks at a stop; says where to stop in addition.
    fn look(&mut self, now: &Registers, view: &impl Memory) -> Option<VirtAddr> {
        let sp = now.general[guest::state::SP];
        let mut more = None;
        if [self.load.0, self.copy.0].contains(&now.pc) {
            let argument = view.read_uint(VirtAddr(sp + 4), 4).unwrap();
            let name = if now.pc == self.load.0 {
                view.read_text(VirtAddr(argument), 64)
            } else {
                self.program(argument).unwrap()
            };
            let back = view.read_uint(VirtAddr(sp), 4).unwrap();
            self.pending = Some((back, sp, name));
            more = Some(VirtAddr(back));
        }
        if let Some((back, entry_sp, name)) = &self.pending
            && now.pc == *back
            && sp == entry_sp + 4
        {
            self.known.push((now.general[0], name.clone()));
            self.pending = None;
        }
        more
    }
}

/// Whether one of the functions is on the stack.
fn has_function(space: &Space, found: &[stack::Activation], functions: &[&str]) -> bool {
    found.iter().any(|activation| {
        let frames = space.frames_at(activation.pc(), activation.lookup());
        let mut names = frames.iter().filter_map(|frame| frame.function.as_deref());
        names.any(|name| functions.contains(&name))
    })
}

/// Checks that every frame was called by the next one; says how many came through an interrupt or a system
/// call.
fn check_calls(
    space: &Space,
    found: &[stack::Activation],
    leaving: bool,
    now: &Registers,
    view: &impl Memory,
) -> usize {
    let image = &space.kernel;
    let shown = || {
        let frames = stack::trace(space, now, view);
        frames.iter().map(|f| format!("{} {:?}", f.pc, f.function)).collect::<Vec<_>>().join("\n")
    };
    let mut through = 0;
    for pair in found.windows(2) {
        let [inner, outer] = pair else { unreachable!() };
        if leaving && outer.registers.ring == 3 {
            break;
        }
        let begins = image.function_at(outer.pc()).is_some_and(|id| image.get(id).start == outer.pc());
        if outer.exact && begins && outer.registers.ring == 0 {
            continue; // a thread that has not begun yet
        }
        if outer.exact {
            // An interrupt or a system call: the inner frame is a way into the kernel.
            let name = &space.frames_at(inner.pc(), inner.lookup())[0].function;
            let name = name.as_deref().unwrap();
            assert!(name.starts_with("vector_") || name == "trap_common", "{}", shown());
            through += 1;
            continue;
        }
        let called = call_target(space, outer.registers.pc, view)
            .unwrap_or_else(|| panic!("no call before {:#x}:\n{}", outer.registers.pc, shown()));
        let inner_image = space.image_at(inner.lookup()).unwrap();
        let callee = inner_image.get(inner_image.function_at(inner.lookup()).unwrap());
        if let Some(target) = called {
            assert_eq!(target, callee.start.0, "{}", shown());
        }
    }
    through
}

/// The first program does not run now, but its kernel stack tells what it waits for; says whether all of that
/// is there.
fn first_program_waits(image: &Arc<Image>, programs: &Programs, now: &Registers, view: &impl Memory) -> bool {
    let none = std::collections::BTreeMap::new();
    let scope = Scope { image, function: None, returns: false, at: None, bindings: &[], definitions: &none };
    let source = "container_of(init_task->threads.next, struct thread, task_link)->stack_pointer";
    let saved = Expression::compile(source, &scope).unwrap().value(view, &Inputs::new(now)).unwrap();
    let waiting = stack::switched_out(image, &["switch_to"], saved).unwrap();
    let names: Vec<String> = stack::trace(&programs.in_program(Some("init")), &waiting, view)
        .into_iter()
        .filter_map(|frame| frame.function)
        .collect();
    let expected = [
        "context_switch",
        "switch_to",
        "schedule",
        "block",
        "block_on",
        "cond_wait",
        "family_wait",
        "sys_wait",
        "syscall",
        "trap",
        "trap_common",
        "wait",
    ];
    assert!(names.iter().map(String::as_str).zip(expected).all(|(a, b)| a == b), "{names:?}");
    names.len() >= expected.len()
}

/// The bundled kernel running its programs: every frame was called by the next one, through interrupts and
/// system calls down to the program's first function.
#[test]
fn stacks_go_through_the_kernel_into_programs() {
    let (mut machine, image, programs) = boot_programs();
    let entry = |name: &str| VirtAddr(support::address(&image, name));
    let (load, copy, ready) = (entry("load_program"), entry("vm_copy"), entry("sched_start"));
    let mut spaces = Spaces { load, copy, known: Vec::new(), pending: None };
    let mut events = Events::default();
    let mut stops = StopSet::after(13).at(load).at(copy);
    let (mut kernel, mut user, mut through, mut waits, mut started) = (0, 0, 0, 0, false);
    for _ in 0..160_000 {
        let stop = machine.run(CPU, &stops, &mut events);
        events.clear();
        let now = guest::view::registers(&machine, CPU);
        let view = Inside(&machine);
        if let Some(more) = spaces.look(&now, &view) {
            stops = stops.at(more);
        }
        started |= now.pc == ready.0 || !spaces.known.is_empty();
        if matches!(stop, machine::Stop::PowerOff | machine::Stop::Exit { .. }) {
            break;
        }
        if !started {
            continue;
        }
        let program = spaces.program(now.cr3);
        let space = programs.in_program(program.as_deref());
        let found = stack::activations(&space, &now, &view);
        // While an address space is being left, the user stack of the old one is out of reach.
        let leaving = has_function(&space, &found, &["switch_to", "sys_exec", "thread_exit"]);
        through += check_calls(&space, &found, leaving, &now, &view);
        if now.ring == 3 && program.as_deref() == Some("life_test") {
            waits += usize::from(first_program_waits(&image, &programs, &now, &view));
        }
        let last = found.last().unwrap();
        let frames = space.frames_at(last.pc(), last.lookup());
        let root = frames.last().unwrap().function.clone().unwrap_or_default();
        if last.registers.ring == 3 {
            user += 1;
            assert!(leaving || root == "_start", "root {root:?}");
        } else {
            kernel += 1;
            let roots =
                ["_start", "start", "thread_start", "idle_loop", "sched_start", "multiboot_entry", "boot"];
            assert!(roots.contains(&root.as_str()), "root {root:?}");
        }
    }
    assert!(kernel > 50 && user > 10_000 && through > 10_000, "{kernel} {user} {through}");
    assert!(spaces.known.iter().any(|(_, name)| name == "life_test"), "{:?}", spaces.known);
    assert!(waits > 20, "{waits}");
}

/// Whatever is in registers and memory: an end, and no panic.
#[test]
fn hostile_stacks_end() {
    let image = support::image("program.c", PROGRAM, &["-g", "-O2"]);
    let plain = support::image("program.c", PROGRAM, &["-O2", "-fno-asynchronous-unwind-tables"]);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut longest = 0;
    for image in [&image, &plain] {
        let space = Programs::new(image.clone()).in_program(None);
        let code = image.segments.iter().find(|segment| segment.executable).unwrap();
        let (first, size) = (code.addr.0, code.bytes.len() as u64);
        for _ in 0..3_000 {
            // A stack full of code addresses and of addresses of itself.
            let words: Vec<u32> = (0..512)
                .map(|_| match random() % 4 {
                    0 => random() as u32,
                    1 => 0x9000 + (random() % 2048) as u32,
                    _ => (first + random() % size) as u32,
                })
                .collect();
            let world = support::World::new(image).words(0x9000, &words);
            let mut registers = support::registers(
                first + random() % size,
                0x9000 + random() % 2048,
                0x9000 + random() % 2048,
            );
            registers.general[3] = random();
            registers.ring = if random() % 2 == 0 { 0 } else { 3 };
            longest = longest.max(stack::trace(&space, &registers, &world).len());
        }
    }
    assert!((3..=stack::FRAMES_MAX).contains(&longest), "{longest}");
}

/// The target of the call that ends right before `pc`; `Some(None)` for an indirect one.
fn call_target(space: &Space, pc: u64, memory: &impl Memory) -> Option<Option<u64>> {
    let mut bytes = [0; 8];
    memory.read(VirtAddr(pc - 8), &mut bytes)?;
    if bytes[3] == 0xe8 {
        let relative = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let target = u64::from((pc as u32).wrapping_add(relative));
        if space.image_at(VirtAddr(target)).is_some_and(|image| image.is_code(VirtAddr(target))) {
            return Some(Some(target));
        }
    }
    let indirect = (1..7).any(|length: usize| {
        let at = 7 - length;
        bytes[at] == 0xff && bytes[at + 1] >> 3 & 7 == 2
    });
    indirect.then_some(None)
}

const LOCALS: &str = r#"
struct pair { int a, b; };
volatile int sink;
int work(int n, struct pair *p) {
    int total = n * 2;
    struct pair mine = { n, n + 1 };
    char name[8] = "abc";
    for (int i = 0; i < 3; i++) {
        total += p->a + mine.b;
        sink = total + name[i];
    }
    return total;
}
void start(void) { struct pair p = { 40, 2 }; sink = work(5, &p); for (;;) asm volatile("hlt"); }
"#;

/// Locals and parameters at a source line, from wherever the compiler keeps them.
#[test]
fn locals_are_known_at_lines() {
    let line = LOCALS.lines().position(|line| line.contains("sink = total")).unwrap() as u32 + 1;
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-Og"],
        &["-g", "-O0", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"],
    ] {
        let image = support::image("locals.c", LOCALS, flags);
        let mut machine = load(&image);
        let at = image.lines("locals.c", line)[0];
        let none = std::collections::BTreeMap::new();
        let function = image.function_at(at).map(|id| image.get(id));
        let scope = Scope {
            image: &image,
            function,
            returns: false,
            at: Some(at),
            bindings: &[],
            definitions: &none,
        };
        let sources = ["total", "n + 0", "p->a", "mine.b", "(int)name[1]", "i"];
        let compiled: Vec<Option<Expression>> =
            sources.iter().map(|source| Expression::compile(source, &scope).ok()).collect();
        assert!(compiled[0].is_some() && compiled[5].is_some(), "{flags:?}");
        let mut events = Events::default();
        for round in 0..3_i64 {
            machine.run(CPU, &StopSet::after(10_000).at(at), &mut events);
            let now = registers(&machine);
            assert_eq!(now.pc, at.0);
            let expected = [10 + 46 * (round + 1), 5, 40, 6, i64::from(b'b'), round];
            for ((source, compiled), expected) in sources.iter().zip(&compiled).zip(expected) {
                if let Some(compiled) = compiled {
                    let value = compiled.value(&Inside(&machine), &Inputs::new(&now)).unwrap();
                    assert_eq!(value as i64, expected, "{source} in round {round} with {flags:?}");
                }
            }
        }
    }
}

/// A program may have a function at address 0, to which the frames of a stack that was cleared lead.
#[test]
fn a_stack_of_the_kernel_does_not_go_on_in_a_program_s_code() {
    let plain = ["-O0", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer"];
    let at_zero = [&plain[..], &["-Wl,-Ttext=0x0"]].concat();
    let kernel = support::image("kernel.c", "void inner(void) {} void start(void) { inner(); }", &plain);
    let program = support::image("program.c", "void start(void) { for (;;); }", &at_zero);
    assert_eq!(support::address(&program, "start"), 0);
    let start = support::address(&kernel, "start");
    let calls = |at: &u64| {
        let mut byte = [0];
        kernel.read(VirtAddr(*at), &mut byte).is_some() && byte[0] == 0xe8
    };
    let returns_to = (start..start + 32).find(calls).unwrap() + 5;
    // Each frame: the caller's frame pointer, and where it is returned to.
    let frames = [(0x9010, returns_to), (0x9020, 0), (0x9030, 0), (0x9040, 0)];
    let mut world = support::World::new(&kernel);
    for (at, (frame, to)) in frames.into_iter().enumerate() {
        world = world.words(0x9000 + 0x10 * at as u64, &[frame, to as u32]);
    }
    let here = support::registers(support::address(&kernel, "inner") + 3, 0x9000, 0x9000);
    let space = Space { kernel, program: Some(program), timer: Arc::default() };
    let found = stack::activations(&space, &here, &world);
    let found: Vec<u64> = found.iter().map(|activation| activation.registers.pc).collect();
    assert_eq!(found, [here.pc, returns_to]);
}

/// A function that changes stacks, about to begin: whoever called it is on this stack, not on the one that it
/// changes to.
#[test]
fn a_switch_that_begins_is_on_the_stack_of_its_caller() {
    let flags = ["-O2", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"];
    let source = "void change(void);
        asm(\".globl change\\n.type change,@function\\nchange:\\n pushl %ebx\\n movl 0xb000,%esp\\n popl %ebx\\n ret\\n.size change,.-change\\n\");
        __attribute__((noinline)) void ends(void) { change(); for (;;); }
        __attribute__((noinline)) void begins(void) { for (;;); } void start(void) { ends(); begins(); }";
    let kernel = support::image("kernel.c", source, &flags);
    let (change, ends) = (support::address(&kernel, "change"), support::address(&kernel, "ends"));
    let calls = |at: &u64| {
        let mut byte = [0];
        kernel.read(VirtAddr(*at), &mut byte).is_some() && byte[0] == 0xe8
    };
    let returns_to = (ends..ends + 32).find(calls).unwrap() + 5;
    let begins = support::address(&kernel, "begins");
    let world = support::World::new(&kernel)
        .words(0x9000, &[returns_to as u32])
        .words(0xa000, &[0, begins as u32])
        .words(0xb000, &[0xa000]);
    let here = support::registers(change, 0x9000, 0);
    let space = Programs::new(kernel.clone()).in_program(None);
    let found = stack::activations(&space, &here, &world);
    let found: Vec<u64> = found.iter().take(2).map(|activation| activation.registers.pc).collect();
    assert_eq!(found, [change, returns_to]);
}

//! The unwinder against a shadow stack, at every single instruction of programs compiled here and now.

mod support;

use guest::image::{Image, Programs, Space};
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
int asm_leaf(int);
int asm_saves(int);
asm(".globl asm_leaf\n.type asm_leaf,@function\nasm_leaf:\n movl 4(%esp),%eax\n movl 4(%esp),%ecx\n addl %ecx,%eax\n ret\n.size asm_leaf,.-asm_leaf\n"
    ".globl asm_saves\n.type asm_saves,@function\nasm_saves:\n pushal\n pushfl\n subl $24,%esp\n movl 64(%esp),%eax\n movl %eax,(%esp)\n call asm_leaf\n"
    " testl %eax,%eax\n jz 1f\n incl sink\n1: addl $24,%esp\n popfl\n popal\n movl $5,%eax\n ret\n.size asm_saves,.-asm_saves\n");
void start(void) {
    for (int i = 0; i < 5; i++) {
        sink += recursive(i) + locals(i) + aligned(i) + dynamic(i * 10) + through(leaf, i) + through(tail, i);
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
    ] {
        let image = support::image("program.c", PROGRAM, flags);
        let (compared, deepest) = compare(&image, 100_000);
        assert!(compared > 3_000 && deepest > 3, "{name}: {compared} {deepest}");
    }
}

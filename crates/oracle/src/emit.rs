//! A program as C for the bundled kernel's thread library.
//!
//! Each shared access is one volatile access, each atomic one the library's function, so that what the
//! processor does is what `enumerate.rs` enumerates. Threads leave their registers in `out` when they end.

use crate::program::{COPY_WORDS, Op, Program, REGISTERS, Value, Waiting};
use std::fmt::Write as _;
use std::path::Path;

const HEADERS: [&str; 8] = [
    "runtime/spawn.h",
    "runtime/syscall.h",
    "threadlib/atomic.h",
    "threadlib/cond.h",
    "threadlib/malloc.h",
    "threadlib/mutex.h",
    "threadlib/sem.h",
    "runtime/stdio.h",
];

/// A function that copies words by one instruction; an interrupt may come between two words.
const COPY: &str = "
static void copy(void)
{
    volatile int *from = source, *to = target;
    int count = COPY_WORDS;
    asm volatile(\"rep movsl\" : \"+S\"(from), \"+D\"(to), \"+c\"(count) : : \"memory\");
}
";

/// The stack is an array, so that it is known where a push goes.
const PUSH_POP: &str = "
static unsigned push_pop(unsigned value)
{
    unsigned popped;
    asm volatile(\"movl %%esp, %%ecx\\n\\t\"
                 \"movl %2, %%esp\\n\\t\"
                 \"pushl %1\\n\\t\"
                 \"popl %0\\n\\t\"
                 \"movl %%ecx, %%esp\"
                 : \"=&r\"(popped)
                 : \"r\"(value), \"r\"(frame + 16)
                 : \"ecx\", \"memory\");
    return popped;
}
";

/// Yields so many times. The count is in a register that the function of the system call pushes: where it
/// comes back, the registers are the same in each round.
const YIELD_FOR: &str = "
static void yield_for(int times)
{
    asm volatile(\"1: pushl $-1\\n\\t\"
                 \"call yield\\n\\t\"
                 \"addl $4, %%esp\\n\\t\"
                 \"decl %0\\n\\t\"
                 \"jnz 1b\"
                 : \"+S\"(times)
                 :
                 : \"eax\", \"ecx\", \"edx\", \"cc\", \"memory\");
}
";

/// Looks at a cell so many times. The count is in memory: the registers are the same in each round.
const TRY_FOR: &str = "
static void try_for(volatile int *cell, int value, int times)
{
    asm volatile(\"1: cmpl %2, (%1)\\n\\t\"
                 \"je 2f\\n\\t\"
                 \"decl %0\\n\\t\"
                 \"jnz 1b\\n\"
                 \"2:\"
                 : \"+m\"(times)
                 : \"r\"(cell), \"r\"(value)
                 : \"memory\", \"cc\");
}
";

fn value(value: Value) -> String {
    match value {
        Value::Constant(value) => value.to_string(),
        Value::Register(register, plus) => format!("r{register} + {plus}"),
    }
}

fn statement(op: &Op) -> String {
    match op {
        Op::Load { register, cell } => format!("r{register} = cells[{cell}];"),
        Op::Store { cell, value: stored } => format!("cells[{cell}] = {};", value(*stored)),
        Op::Add { register, cell, amount } => {
            format!("r{register} = atomic_fetch_add(&cells[{cell}], {amount});")
        }
        Op::Exchange { register, cell, value } => {
            format!("r{register} = atomic_exchange(&cells[{cell}], {value});")
        }
        Op::CompareSwap { register, cell, expected, value } => {
            format!("r{register} = atomic_compare_swap(&cells[{cell}], {expected}, {value});")
        }
        Op::Fence => "asm volatile(\"mfence\" : : : \"memory\");".to_owned(),
        Op::Lock(mutex) => format!("mutex_lock(&mutexes[{mutex}]);"),
        Op::Unlock(mutex) => format!("mutex_unlock(&mutexes[{mutex}]);"),
        Op::WaitWhile { condition, mutex, cell, value } => format!(
            "while (cells[{cell}] == {value})\n        cond_wait(&conditions[{condition}], &mutexes[{mutex}]);"
        ),
        Op::Signal(condition) => format!("cond_signal(&conditions[{condition}]);"),
        Op::Broadcast(condition) => format!("cond_broadcast(&conditions[{condition}]);"),
        Op::Down(semaphore) => format!("sem_wait(&semaphores[{semaphore}]);"),
        Op::Up(semaphore) => format!("sem_signal(&semaphores[{semaphore}]);"),
        Op::Yield { times } => format!("yield_for({times});"),
        Op::Await { cell, value, how } => {
            let body = match how {
                Waiting::Spinning => "asm volatile(\"pause\");",
                Waiting::Yielding => "yield(-1);",
                Waiting::Counting => "rounds++, yield(-1);",
            };
            format!("while (cells[{cell}] != {value})\n        {body}")
        }
        Op::Try { cell, value, times } => format!("try_for(&cells[{cell}], {value}, {times});"),
        Op::Rounds { times, mutex, cell } => format!(
            "for (int i = 0; i < {times}; i++) {{\n        mutex_lock(&mutexes[{mutex}]);\n        \
             int seen = cells[{cell}];\n        cells[{cell}] = seen + 1;\n        \
             mutex_unlock(&mutexes[{mutex}]);\n        yield(-1);\n    }}"
        ),
        Op::Copy => "copy();".to_owned(),
        Op::Fill { value } => format!("for (int i = 0; i < COPY_WORDS; i++)\n        source[i] = {value};"),
        Op::Peek { register, word } => format!("r{register} = target[{word}];"),
        Op::PushPop { register, value } => format!("r{register} = push_pop({value});"),
        Op::Poke { value } => format!("((volatile int *)frame)[15] = {value};"),
        Op::Free => "free((void *)block);".to_owned(),
        Op::Touch { register } => format!("r{register} = *block;"),
        Op::When { register, value, then } => {
            format!("if (r{register} == {value})\n        {}", statement(then))
        }
    }
}

/// The C source; `guests` is the folder of the library's headers.
#[must_use]
pub fn source(program: &Program, guests: &Path) -> String {
    let mut text = format!("/*\n{program}\n*/\n");
    for header in HEADERS {
        let _ = writeln!(text, "#include \"{}\"", guests.join(header).display());
    }
    let text_of = program.threads.iter().flatten().map(statement).collect::<Vec<_>>().join("\n");
    let _ = write!(
        text,
        "\nenum {{ COPY_WORDS = {COPY_WORDS} }};\n\nvolatile int cells[{}];\nvolatile int out[{}][{REGISTERS}];\n",
        program.cells,
        program.threads.len()
    );
    if text_of.contains("mutexes") {
        let _ = writeln!(text, "static struct mutex mutexes[{}];", program.mutexes);
    }
    if text_of.contains("conditions") {
        let _ = writeln!(text, "static struct cond conditions[{}];", program.conditions);
    }
    if text_of.contains("semaphores") {
        let _ = writeln!(text, "static struct sem semaphores[{}];", program.semaphores.len());
    }
    if text_of.contains("copy()") || text_of.contains("source[") {
        let _ = writeln!(text, "static volatile int source[COPY_WORDS];");
    }
    if text_of.contains("copy()") || text_of.contains("target[") {
        let _ = writeln!(text, "static volatile int target[COPY_WORDS];");
    }
    if text_of.contains("copy()") {
        text += COPY;
    }
    if text_of.contains("frame") || text_of.contains("push_pop") {
        text += "static int frame[16];\n";
    }
    if text_of.contains("push_pop") {
        text += PUSH_POP;
    }
    if text_of.contains("try_for") {
        text += TRY_FOR;
    }
    if text_of.contains("yield_for") {
        text += YIELD_FOR;
    }
    if text_of.contains("rounds++") {
        text += "static volatile int rounds;\n";
    }
    if program.heap {
        let _ = writeln!(text, "static volatile int *volatile block;");
    }
    let _ = writeln!(text, "static struct spawn_stack stacks[{}];", program.threads.len());
    for (number, thread) in program.threads.iter().enumerate().rev() {
        let name = if number == 0 {
            "int main(void)".to_owned()
        } else {
            format!("static void thread{number}(void)")
        };
        let _ = write!(text, "\n{name}\n{{\n    unsigned r0 = 0, r1 = 0;\n");
        if number == 0 {
            if text_of.contains("semaphores") {
                for (semaphore, count) in program.semaphores.iter().enumerate() {
                    let _ = writeln!(text, "    sem_init(&semaphores[{semaphore}], {count});");
                }
            }
            if program.heap {
                text += "    block = malloc(sizeof *block);\n    *block = 0;\n";
            }
            for other in 1..program.threads.len() {
                let _ = writeln!(text, "    SPAWN(stacks[{other}], thread{other});");
            }
        }
        for op in thread {
            let _ = writeln!(text, "    {}", statement(op));
        }
        let _ = write!(text, "    out[{number}][0] = r0;\n    out[{number}][1] = r1;\n    vanish();\n}}\n");
    }
    text
}

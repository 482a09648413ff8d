//! A first draft of a description, guessed from names and types.
//!
//! Contract: the draft always parses, and every line that is a guess says why it was guessed; what was not
//! found is a comment that says what to look for. A draft of a kernel whose names are usual resolves without
//! problems. Nothing is invented: each name in the draft is one of the image.

mod locks;
mod running;

use crate::elf::image::{Function, Image};
use crate::elf::types::{Type, TypeId};
use locks::locks;
use running::{Running, function_that_finds, idle_thread, running};
use std::fmt::Write as _;

/// The first of `names` that the image has as a function that is called.
fn function<'a>(image: &'a Image, names: &[&str]) -> Option<&'a Function> {
    names.iter().find_map(|name| image.function(name).first().map(|id| image.get(*id)))
}

fn functions(image: &Image, names: &[&str]) -> Vec<String> {
    names.iter().filter(|name| !image.function(name).is_empty()).map(ToString::to_string).collect()
}

/// Everything the draft says, line by line.
struct Draft<'a> {
    image: &'a Image,
    text: String,
}

impl Draft<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn section(&mut self, name: &str) {
        let _ = write!(self.text, "\n{name}\n");
    }

    fn guess(&mut self, line: &str, why: &str) {
        let _ = writeln!(self.text, "{line}  # guessed: {why}");
    }

    fn missing(&mut self, example: &str, what: &str) {
        let _ = writeln!(self.text, "# {example}  # not found: {what}");
    }

    /// A list of functions under `key`, or a note that none was found.
    fn list(&mut self, key: &str, names: &[&str], what: &str) {
        let found = functions(self.image, names);
        if found.is_empty() {
            self.missing(&format!("{key} = [\"…\"]"), what);
        } else {
            let quoted: Vec<String> = found.iter().map(|name| format!("\"{name}\"")).collect();
            self.guess(&format!("{key} = [{}]", quoted.join(", ")), what);
        }
    }
}

/// The struct that a pointer points to.
fn pointee(image: &Image, ty: TypeId) -> Option<TypeId> {
    let types = image.types();
    let Type::Pointer { to, .. } = types.get(types.strip(ty)) else { return None };
    let to = types.strip(*to);
    matches!(types.get(to), Type::Struct { .. }).then_some(to)
}

fn is_byte(image: &Image, ty: TypeId) -> bool {
    matches!(image.types().get(image.types().strip(ty)), Type::Integer { size: 1, .. })
}

fn member(image: &Image, block: TypeId, names: &[&str]) -> Option<String> {
    names.iter().find(|name| image.types().member(block, name).is_some()).map(ToString::to_string)
}

/// The enumerators of a state whose names hold one of `words`.
fn states(image: &Image, block: TypeId, state: &str, words: &[&str]) -> Vec<String> {
    let types = image.types();
    let Some(member) = types.member(block, state) else { return Vec::new() };
    let Type::Enum { enumerators, .. } = types.get(types.strip(member.ty)) else { return Vec::new() };
    let named = |name: &str| {
        let name = name.to_ascii_uppercase();
        !name.contains("NOT_") && words.iter().any(|word| name.contains(word))
    };
    enumerators.iter().filter(|(name, _)| named(name)).map(|(name, _)| name.to_string()).collect()
}

/// The enumerators of a state that mean "can run".
fn runnable_states(image: &Image, block: TypeId, state: &str) -> Vec<String> {
    states(image, block, state, &["RUNNABLE", "RUNNING", "READY"])
}

/// The name of parameter `index`, or `argN` if there is none.
fn parameter(image: &Image, function: &Function, index: usize) -> String {
    let subprogram = image.subprogram(function);
    match subprogram.and_then(|subprogram| subprogram.parameters.get(index)) {
        Some(parameter) if !parameter.name.is_empty() => parameter.name.to_string(),
        _ => format!("arg{index}"),
    }
}

/// What an allocator is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Page,
    Pages,
}

/// Pairs of functions that allocate and free memory, by their usual names. Among pairs that hand out pages,
/// one that calls no other of the list comes first.
const HEAPS: [(&str, &str, Unit); 10] = [
    ("palloc_get_multiple", "palloc_free_multiple", Unit::Pages),
    ("palloc_get_page", "palloc_free_page", Unit::Page),
    ("page_alloc", "page_free", Unit::Page),
    ("kalloc", "kfree", Unit::Page),
    ("malloc", "free", Unit::Bytes),
    ("kmalloc", "kfree", Unit::Bytes),
    ("smalloc", "sfree", Unit::Bytes),
    ("_malloc", "_free", Unit::Bytes),
    ("_smalloc", "_sfree", Unit::Bytes),
    ("heap_alloc", "heap_free", Unit::Bytes),
];

/// Functions of an allocator that may wrap those of the same name behind an underscore.
const ALLOCATORS: [&str; 8] =
    ["malloc", "memalign", "calloc", "realloc", "free", "smalloc", "smemalign", "sfree"];

/// Drafts a description of the kernel in `image`.
#[must_use]
pub fn draft(image: &Image) -> String {
    let mut draft = Draft { image, text: String::new() };
    draft
        .line("# A draft by `rockfall init`. Lines marked \"guessed\" follow from a name alone: check them.");
    draft.line(
        "# Lines that begin with # and end with \"not found\" need you. docs/kernels.md explains every key;",
    );
    draft.line("# `rockfall doctor` runs the kernel and tells what does not fit.");
    if !image.has_debug_information() {
        draft.line(
            "# The kernel has no debugging information: build it with -g, or expressions know no types.",
        );
    }
    let stem = image.name.rsplit('/').next().unwrap_or("kernel");
    let stem: String = stem.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    draft.line(&format!("name = \"{stem}\""));

    // A page allocator that is given its memory in two parts, the second up to a number in a header.
    if functions(image, &["kinit1", "kinit2"]).len() == 2 {
        draft.section("[machine]");
        draft.guess("memory = \"256M\"", "kinit2 is told how much there is and does not look; see PHYSTOP");
    }
    let current = running(image);
    if let Some(definition) = current.as_ref().and_then(|current| current.definition.as_ref()) {
        draft.section("[define]");
        draft.guess(
            &format!("running = \"{definition}\""),
            "the stack pointer, rounded down, leads to the control block",
        );
    }
    threads(&mut draft, current.as_ref());
    draft.section("[preemption]");
    draft.guess("interrupts-as-lock = true", "on one processor, data is protected by turning them off");
    draft.missing(
        "allowed = \"preempt_disabled == 0\"",
        "only for kernels that switch preemption off without cli",
    );
    draft.section("[timer]");
    draft.guess("vector = 0x20", "where most kernels put the first timer of a PC");
    scheduling(&mut draft);
    let idle = idle_thread(image);
    if idle.is_none() {
        let loops = ["idle", "idle_loop", "cpu_idle"];
        draft.list("idle", &loops, "waits for an interrupt because nothing can run");
    }
    draft.section("[idle]");
    match idle {
        Some(name) => draft.guess(&format!("thread = \"{name}\""), "by its name"),
        None if !image.function("scheduler").is_empty() && current.is_some() => {
            let expression = current.as_ref().map_or("", |current| &current.expression);
            draft.guess(&format!("when = \"!{expression}\""), "a scheduler on a stack of its own")
        }
        None => draft
            .missing("thread = \"idle_thread\"", "the idle thread, or 'is' or 'when', if the kernel has one"),
    }
    locks(&mut draft);
    heaps(&mut draft);
    panics(&mut draft);
    test(&mut draft);
    user(&mut draft);
    ignore(&mut draft);
    draft.text
}

/// The functions by which threads change places and wait.
fn scheduling(draft: &mut Draft<'_>) {
    let image = draft.image;
    draft.section("[functions]");
    timer(draft);
    let switches = [
        "context_switch",
        "switch_to",
        "switch_threads",
        "swtch",
        "do_switch",
        "thread_switch",
        "ctx_switch",
        "sched",
    ];
    let switch = functions(image, &switches).into_iter().next();
    match &switch {
        Some(name) => draft.guess(&format!("switch = [\"{name}\"]"), "the function that changes threads"),
        None => draft.missing("switch = [\"…\"]", "the function that changes from one thread to another"),
    }
    let begins = [
        "thread_begin",
        "forkret",
        "kernel_thread",
        "kernel_thread_entry",
        "fork_return",
        "thread_entry",
        "ret_from_fork",
        "go_to_user_mode",
        "enter_user_mode",
        "return_to_user",
    ];
    match functions(image, &begins).first() {
        Some(name) => draft.guess(&format!("switch-ends = [\"enter {name}\"]"), "where new threads begin"),
        None => draft
            .missing("switch-ends = [\"enter …\"]", "where new threads begin, if not by return from switch"),
    }
    draft.list("yield", &["yield", "thread_yield", "sys_yield", "sched_yield"], "offers the processor");
    draft.list("sleep", &["timer_sleep", "thread_sleep", "sys_sleep", "sleep_until"], "waits for the clock");
    let devices = ["consoleread", "iderw", "ide_read", "ide_write", "keyboard_getc", "input_getc"];
    draft.list("device", &devices, "waits for a device, not for a thread");
    let waits = ["thread_block", "sema_down", "sem_wait", "cond_wait"];
    draft.list("blocking", &waits, "waits on behalf of its callers");
    let wrapped = |name: &&str| !image.function(&format!("_{name}")).is_empty();
    let wrappers: Vec<&str> = ALLOCATORS.into_iter().filter(wrapped).collect();
    if !functions(image, &wrappers).is_empty() {
        draft.list("trusted", &wrappers, "wraps the allocator");
    }
}

fn threads(draft: &mut Draft<'_>, current: Option<&Running>) {
    let image = draft.image;
    draft.section("[threads]");
    let function = function_that_finds(image);
    match (current, function) {
        (Some(Running { expression, block, .. }), _) => {
            let display = image.types().display(*block);
            draft.guess(&format!("current = \"{expression}\""), &format!("points to a {display}"));
        }
        (None, Some((name, _))) => draft.missing(
            "current = \"(struct …)($esp & ~0x…)\"",
            &format!("what {name} computes, over $esp or, if $ring, over where the kernel's stack begins"),
        ),
        (None, None) => draft.missing(
            "current = \"current->tid\"",
            "the thread that runs: a variable, or the stack pointer's page",
        ),
    }
    let block = current.map(|current| current.block).or(function.map(|(_, block)| block));
    if let Some(block) = block {
        members(draft, block);
    }
    let state = block.and_then(|block| Some((block, member(image, block, &["state", "status"])?)));
    create(draft, block);
    if current.is_some_and(|current| current.definition.is_some()) {
        begin(draft);
    }
    exit(draft, current, state.as_ref().map(|(block, state)| (*block, state.as_str())));
    draft.section("[runnable]");
    let states = state.as_ref().map_or_else(Vec::new, |(block, state)| runnable_states(image, *block, state));
    match (&state, states.is_empty()) {
        (Some((_, state)), false) => {
            let tests: Vec<String> = states.iter().map(|name| format!("t->{state} == {name}")).collect();
            draft.guess(&format!("when = \"{}\"", tests.join(" || ")), "by the names of the states");
        }
        (Some((_, state)), true) => {
            draft.missing(&format!("when = \"t->{state} == …\""), "which state means that a thread can run");
        }
        (None, _) => {
            draft.missing("when = \"t->state == …\"", "when a thread can run, or 'add' and 'remove' hooks")
        }
    }
}

/// What the control block says of a thread.
fn members(draft: &mut Draft<'_>, block: TypeId) {
    let image = draft.image;
    let display = image.types().display(block);
    match member(image, block, &["tid", "id", "pid", "thread_id"]) {
        Some(id) => draft.guess(&format!("id = \"t->{id}\""), &format!("a member of {display}")),
        None => draft.missing("id = \"t->…\"", &format!("the number of a thread in {display}")),
    }
    let text = |ty| match image.types().get(image.types().strip(ty)) {
        Type::Array { of, .. } | Type::Pointer { to: of, .. } => is_byte(image, *of),
        _ => false,
    };
    if image.types().member(block, "name").is_some_and(|name| text(name.ty)) {
        draft.guess("name = \"t->name\"", "a text");
    }
    let pointers = ["stack_pointer", "saved_esp", "esp", "ksp", "context", "stack"];
    if let Some(pointer) = member(image, block, &pointers) {
        draft.guess(&format!("stack-pointer = \"t->{pointer}\""), "saved while the thread does not run");
    }
}

/// The beginning of a thread: a function that returns or takes one.
fn create(draft: &mut Draft<'_>, block: Option<TypeId>) {
    let image = draft.image;
    let creators =
        ["thread_launch", "thread_create", "allocproc", "create_thread", "thread_fork", "thread_init"];
    // Where nothing that makes a thread shows it, it is known at the latest when it can run.
    let wakers = ["thread_unblock", "thread_ready", "thread_make_runnable", "make_runnable", "thread_wake"];
    let Some(block) = block else {
        draft.missing(
            "create = [{ on = \"enter …\", thread = \"arg0\" }]",
            "where a new thread becomes known",
        );
        return;
    };
    // Every file that is compiled has its own copy of the type.
    let display = image.types().display(block);
    let of_thread =
        |ty| pointee(image, ty).is_some_and(|ty| ty == block || image.types().display(ty) == display);
    let signature = |name: &str| {
        let function = image.get(*image.function(name).first()?);
        let subprogram = image.subprogram(function)?;
        let takes = subprogram.parameters.iter().position(|local| of_thread(local.ty));
        Some((subprogram.returns.is_some_and(of_thread), takes.map(|at| parameter(image, function, at))))
    };
    let returns = |name: &str| {
        (format!("{{ on = \"leave {name}\", thread = \"ret\", if = \"ret\" }}"), "it returns a thread")
    };
    let named = |names: &[&str]| {
        names.iter().find_map(|name| match signature(name)? {
            (true, _) => Some(returns(name)),
            (false, Some(thread)) => {
                Some((format!("{{ on = \"enter {name}\", thread = \"{thread}\" }}"), "it takes a thread"))
            }
            (false, None) => None,
        })
    };
    let made = || match makers(image, &of_thread).as_slice() {
        [name] => Some(returns(name)),
        _ => None,
    };
    let hook = named(&creators).or_else(made).or_else(|| named(&wakers));
    match (hook, function(image, &creators)) {
        (Some((hook, why)), _) => draft.guess(&format!("create = [{hook}]"), why),
        (None, Some(function)) => draft.missing(
            &format!("create = [{{ on = \"leave {}\", thread = \"…\" }}]", function.name),
            "how the new thread is found there",
        ),
        (None, None) => draft.missing(
            "create = [{ on = \"enter …\", thread = \"arg0\" }]",
            "where a new thread becomes known",
        ),
    }
    let first = ["initial_thread", "init_thread", "main_thread", "boot_thread"];
    let is_thread = |name: &&&str| image.variable(name).is_some_and(|variable| of_thread(variable.ty));
    if let Some(name) = first.iter().find(is_thread) {
        draft.guess(&format!("existing = [\"{name}\"]"), "nobody creates the first thread");
    }
}

/// Functions that return a thread and whose names say that they make it; of several, those that say what.
fn makers(image: &Image, of_thread: &dyn Fn(TypeId) -> bool) -> Vec<String> {
    let makes = |(_, function): &(_, &Function)| {
        let returns = image.subprogram(function).and_then(|subprogram| subprogram.returns);
        returns.is_some_and(of_thread)
            && ["alloc", "create", "new", "make"].iter().any(|word| function.name.contains(word))
    };
    let names = image.functions().filter(makes).map(|(_, function)| function.name.to_string());
    let names: std::collections::BTreeSet<String> = names.collect();
    let says = |name: &&String| ["thread", "tcb", "proc", "task"].iter().any(|word| name.contains(word));
    match names.len() {
        0 | 1 => names.into_iter().collect(),
        _ => names.iter().filter(says).cloned().collect(),
    }
}

/// Drafts the place from which on hooks count: before there are threads, the stack pointer tells none.
fn begin(draft: &mut Draft<'_>) {
    let image = draft.image;
    let plain = |function: &&Function| {
        image.subprogram(function).is_some_and(|subprogram| subprogram.parameters.is_empty())
    };
    match function(image, &["thread_init", "threads_init", "init_threads", "sched_init"]).filter(plain) {
        Some(function) => {
            draft.guess(&format!("begin = \"leave {}\"", function.name), "from here on there are threads");
        }
        None => draft.missing("begin = \"leave …\"", "from where on the stack pointer tells a thread"),
    }
}

/// How a test is begun: by the kernel itself, in a function of its own, or by what is typed to a shell.
fn test(draft: &mut Draft<'_>) {
    let image = draft.image;
    draft.section("[test]");
    if let Some(function) = function(image, &["run_test", "run_tests", "run_task", "kernel_test"]) {
        draft.guess(
            "input = \"none\"",
            "the kernel begins its test by itself, whichever -t says; 'command-line' if it can be told",
        );
        draft.guess(&format!("start = [{{ on = \"enter {}\" }}]", function.name), "by its name");
        draft.guess(&format!("end = [{{ on = \"leave {}\" }}]", function.name), "by its name");
        return;
    }
    draft.line("input = \"keyboard\"");
    match function(image, &["readline", "sys_readline", "consoleread", "input_getc", "getline"]) {
        Some(function) => draft.guess(
            &format!("ready = [{{ on = \"enter {}\" }}]", function.name),
            "where the shell waits for a command",
        ),
        None => draft.missing("ready = [{ on = \"enter …\" }]", "where the kernel waits for a command"),
    }
}

/// Drafts where programs are: below a kernel that is linked to the upper half.
fn user(draft: &mut Draft<'_>) {
    const UPPER: u64 = 0x8000_0000;
    const STEP: u64 = 0x1000_0000;
    let loaded = draft.image.segments.iter().filter(|segment| segment.size > 0);
    let Some(lowest) = loaded.map(|segment| segment.addr.0).filter(|addr| *addr >= UPPER).min() else {
        return;
    };
    if draft.image.architecture != crate::state::Architecture::X86 {
        return;
    }
    draft.section("[user]");
    draft.guess(
        &format!("region = {{ from = \"0\", to = \"{:#x}\" }}", lowest / STEP * STEP),
        "below the kernel",
    );
}

fn ignore(draft: &mut Draft<'_>) {
    let image = draft.image;
    draft.section("[ignore]");
    let scheduler = [
        "schedule",
        "sched",
        "scheduler",
        "context_switch",
        "switch_to",
        "switch_threads",
        "swtch",
        "timer_interrupt",
        "timer_handler",
        "thread_tick",
        "next_thread_to_run",
        "thread_schedule_tail",
        "process_activate",
        "pagedir_activate",
        "tss_update",
        "switchuvm",
        "switchkvm",
    ];
    let quoted = |names: Vec<&str>| {
        let names: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
        names.join(", ")
    };
    let functions: Vec<&str> =
        scheduler.into_iter().chain(running::FINDERS).filter(|name| !image.ranges(name).is_empty()).collect();
    draft.guess(
        &format!("functions = [{}]", quoted(functions)),
        "they run at every switch, so their accesses would make everything conflict",
    );
    let lists =
        ["ready_list", "ready_queue", "run_queue", "runqueue", "idle_ticks", "kernel_ticks", "thread_ticks"];
    let symbols: Vec<&str> = lists.into_iter().filter(|name| image.variable(name).is_some()).collect();
    if !symbols.is_empty() {
        draft.guess(&format!("symbols = [{}]", quoted(symbols)), "what a scheduler keeps");
    }
}

/// The end of a thread: where it gives way for the last time, if its state says so there, else a function by
/// its name.
fn exit(draft: &mut Draft<'_>, current: Option<&Running>, state: Option<(TypeId, &str)>) {
    let image = draft.image;
    let over = state.and_then(|(block, state)| {
        let over = states(image, block, state, &["ZOMBIE", "DYING", "DEAD", "EXITED"]);
        Some((state, over.into_iter().next()?))
    });
    // With an argument it makes another thread ready.
    let plain = |function: &&Function| {
        image.subprogram(function).is_some_and(|subprogram| subprogram.parameters.is_empty())
    };
    let gives_way = function(image, &["sched", "schedule"]).filter(plain);
    if let (Some(current), Some((state, over)), Some(function)) = (current, over, gives_way) {
        let condition = format!("{}->{state} == {over}", current.expression);
        draft.guess(
            &format!("exit = [{{ on = \"enter {}\", if = \"{condition}\" }}]", function.name),
            "gives way for the last time",
        );
        return;
    }
    match function(
        image,
        &["thread_die", "kill_thread", "thread_exit", "do_exit", "sys_vanish", "vanish", "exit"],
    ) {
        Some(function) => {
            draft.guess(&format!("exit = [{{ on = \"enter {}\" }}]", function.name), "by its name");
        }
        None => draft.missing("exit = [{ on = \"enter …\" }]", "the last function of a thread"),
    }
}

/// The function that handles ticks: the one for all interrupts, if it is told which one it is, because
/// threads may be switched there when the timer's own has returned.
fn timer(draft: &mut Draft<'_>) {
    let image = draft.image;
    let types = image.types();
    let all = [
        "trap",
        "trap_handler",
        "trap_dispatch",
        "interrupt_handler",
        "intr_handler",
        "isr_handler",
        "irq_handler",
    ];
    // Entered from assembly, so everybody can name it; a driver's handler of the same name is its own.
    let global = |name: &&&str| image.symbol(name).is_some_and(|symbol| symbol.global);
    let named = all.iter().filter(global).find_map(|name| {
        let function = image.get(*image.function(name).first()?);
        let frame = image.subprogram(function)?.parameters.first()?;
        let Type::Pointer { to, .. } = types.get(types.strip(frame.ty)) else { return None };
        let numbers = ["trapno", "trap_no", "tf_trapno", "vec_no", "vector", "int_no", "number", "cause"];
        Some((*name, frame.name.to_string(), member(image, types.strip(*to), &numbers)?))
    });
    let own = [
        "timer_interrupt",
        "timer_handler",
        "timer_tick",
        "handle_timer",
        "timer_callback",
        "on_tick",
        "tick",
    ];
    match named {
        Some((name, frame, number)) => draft.guess(
            &format!("timer = [\"{name} if {frame}->{number} == 0x20\"]"),
            "handles all interrupts, the timer's with 'timer.vector'",
        ),
        None => draft.list("timer", &own, "the function that handles a tick"),
    }
}

fn heaps(draft: &mut Draft<'_>) {
    let image = draft.image;
    let there =
        |alloc: &str, free: &str| !image.function(alloc).is_empty() && !image.function(free).is_empty();
    // What wraps another pair hands out the same blocks, and not everybody goes through it.
    let wraps = |alloc: &str, free: &str| there(&format!("_{alloc}"), &format!("_{free}"));
    let found: Vec<_> =
        HEAPS.into_iter().filter(|(alloc, free, _)| there(alloc, free) && !wraps(alloc, free)).collect();
    let pages = found.iter().find(|(_, _, unit)| *unit != Unit::Bytes).map(|(alloc, _, _)| *alloc);
    for &(alloc, free, unit) in &found {
        if unit != Unit::Bytes && pages != Some(alloc) {
            continue;
        }
        draft.section("[[heap]]");
        draft.line(&format!("name = \"{alloc}\""));
        if let Some(pages) = pages.filter(|_| unit == Unit::Bytes) {
            draft.guess(&format!("inside = \"{pages}\""), "takes its memory from there");
        }
        let function = image.get(image.function(alloc)[0]);
        let parameters = image.subprogram(function).map(|subprogram| &*subprogram.parameters);
        let counts = ["page_cnt", "page_count", "pages", "npages", "count", "cnt", "n"];
        let counted = parameters.and_then(|all| all.iter().find(|local| counts.contains(&&*local.name)));
        let size = match (unit, counted) {
            (Unit::Pages, Some(count)) => format!("{} * 4096", count.name),
            (Unit::Bytes, _) if parameters.is_none_or(|all| !all.is_empty()) => "arg0".into(),
            _ => "4096".into(),
        };
        let hook = |name: &str, size: &str| {
            format!("{{ on = \"leave {name}\", address = \"ret\", size = \"{size}\", if = \"ret\" }}")
        };
        let mut hooks = vec![hook(alloc, &size)];
        // Of an alignment and a size.
        let aligned = alloc.strip_suffix("malloc").map(|start| format!("{start}memalign"));
        hooks.extend(aligned.filter(|name| !image.function(name).is_empty()).map(|name| hook(&name, "arg1")));
        draft.guess(&format!("alloc = [{}]", hooks.join(", ")), "by its name");
        draft.guess(
            &format!("free = [{{ on = \"enter {free}\", address = \"arg0\", if = \"arg0\" }}]"),
            "by its name",
        );
    }
    if found.is_empty() {
        draft.section("# [[heap]]");
        draft.missing(
            "alloc = [{ on = \"leave …\", address = \"ret\", size = \"arg0\", if = \"ret\" }]",
            "the allocator",
        );
        draft.missing("free = [{ on = \"enter …\", address = \"arg0\" }]", "its opposite");
    }
}

fn panics(draft: &mut Draft<'_>) {
    let image = draft.image;
    let found =
        functions(image, &["panic", "kpanic", "debug_panic", "assert_fail", "__assert_fail", "kernel_panic"]);
    if found.is_empty() {
        draft.section("# [[panic]]");
        draft.missing("on = \"enter …\"", "the function by which the kernel gives up");
        return;
    }
    for name in found {
        let function = image.get(image.function(&name)[0]);
        draft.section("[[panic]]");
        draft.guess(&format!("on = \"enter {name}\""), "by its name");
        let Some(subprogram) = image.subprogram(function) else { continue };
        let types = image.types();
        let text = |ty| matches!(types.get(types.strip(ty)), Type::Pointer { to, .. } if is_byte(image, *to));
        // The format of a variadic function is its last text; otherwise the first text is the message.
        let texts: Vec<&str> =
            subprogram.parameters.iter().filter(|local| text(local.ty)).map(|local| &*local.name).collect();
        match (subprogram.variadic, texts.first(), texts.last()) {
            (true, _, Some(format)) => {
                draft.guess(&format!("message = \"format({format}, ...)\""), "a printf format")
            }
            (false, Some(message), _) => draft.guess(&format!("message = \"string({message})\""), "a text"),
            _ => {}
        }
    }
}

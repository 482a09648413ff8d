//! Descriptions: what is wrong with one is reported, all of it, with its place; those that ship fit their
//! kernels.

mod support;

use expect_test::{Expect, expect};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::expression::Inputs;
use guest::hooks::init;
use guest::hooks::kernel::{Activity, HookEvent, Kernel, Place, Runnable};
use guests::{Build, Design};
use std::path::Path;
use std::sync::Arc;
use support::{World, image, registers};

const KERNEL: &str = r#"
enum state { READY, BLOCKED };
struct thread { int tid; enum state state; struct thread *next; };
struct mutex { struct thread *owner; };
struct thread *current, *run_queue;
int ticks, preempt_count;
__attribute__((noinline)) void switch_to(struct thread *t) { current = t; }
static inline void helper(void) { ticks += 2; }
__attribute__((noinline)) void timer_tick(void) { helper(); ticks++; }
__attribute__((noinline)) struct thread *thread_new(int tid) { run_queue->tid = tid; return run_queue; }
__attribute__((noinline)) void thread_exit(void) { current->state = BLOCKED; }
__attribute__((noinline)) void mutex_lock(struct mutex *m) { while (m->owner) ; m->owner = current; }
__attribute__((noinline)) int mutex_try(struct mutex *m) { if (m->owner) return 0; m->owner = current; return 1; }
__attribute__((noinline)) void mutex_unlock(struct mutex *m) { m->owner = 0; }
__attribute__((noinline)) void *kmalloc(unsigned size) { static char pool[64]; return size < 64 ? pool : 0; }
__attribute__((noinline)) void kfree(void *p) { ticks += (int)p; }
__attribute__((noinline)) void panic(const char *fmt, ...) { for (;;); }
__attribute__((noinline)) static int deliver(struct thread *t, int flag) { t->tid += flag; return t->tid * ticks; }
__attribute__((noinline)) void readline(void) { ticks--; }
void start(void) {
    struct mutex m = {0};
    thread_new(3); switch_to(run_queue); timer_tick(); mutex_lock(&m); mutex_try(&m); mutex_unlock(&m);
    kfree(kmalloc(ticks)); readline(); thread_exit(); ticks = deliver(current, ticks) + deliver(run_queue, 3);
    panic("%d", ticks);
}
"#;

const GOOD: &str = r#"
name = "small"
[threads]
current = "current"
id = "t->tid"
create = [{ on = "leave thread_new", thread = "ret", if = "ret && arg0 > 0" }]
exit = [{ on = "enter thread_exit" }]
[runnable]
when = "t->state == READY"
[functions]
timer = "timer_tick"
switch = ["switch_to if t != 0", "absent?"]
[[lock]]
lock = "mutex_lock"
trylock = "mutex_try"
unlock = "mutex_unlock"
owner = "lock->owner"
available = "!lock->owner || lock->owner == t"
[[heap]]
alloc = [{ on = "leave kmalloc", size = "size", if = "ret" }]
free = [{ on = "enter kfree" }]
[[panic]]
on = "enter panic"
message = "format(fmt, ...)"
[[fault]]
on = "enter deliver"
vector = "flag"
address = "t"
[test]
ready = [{ on = "enter readline" }]
[[check]]
holds = "ticks == 3"
"#;

fn kernel() -> Arc<Image> {
    image("small.c", KERNEL, &["-g", "-O1"])
}

fn resolve(image: &Arc<Image>, text: &str) -> Result<Arc<Kernel>, String> {
    let description = Description::parse("k.toml", text).map_err(|problem| problem.to_string())?;
    Kernel::resolve(&description, image)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_good_description_becomes_hooks() {
    let image = kernel();
    let kernel = resolve(&image, GOOD).unwrap();
    let hook = |wanted: fn(&HookEvent) -> bool| kernel.hooks.iter().find(|hook| wanted(&hook.event)).unwrap();

    // A hook at the return keeps the arguments of the entry.
    let create = hook(|event| matches!(event, HookEvent::Create { .. }));
    let Place::Leave { entries, returns, .. } = &create.place else { panic!("{:?}", create.place) };
    assert_eq!(entries.len(), 1);
    assert!(!returns.is_empty());
    assert_eq!(kernel.entered(entries[0]).len(), 1);
    assert!(kernel.stops().contains(&entries[0]));
    let world = World::new(&image).words(0x9000, &[0x1111, 5]).words(0x8000, &[42, 0, 0]);
    let mut at_entry = registers(entries[0].0, 0x9000, 0);
    let kept: Vec<u64> = create.capture(image.architecture, &at_entry, &world).collect();
    assert_eq!(kept, [5]);
    at_entry.general[0] = 0x8000;
    let inputs = Inputs { registers: &at_entry, arguments: Some(&kept), bound: &[] };
    let HookEvent::Create { thread } = &create.event else { unreachable!() };
    assert_eq!(thread.value(&world, &inputs), Ok(0x8000));
    assert_eq!(create.condition.as_ref().unwrap().holds(&world, &inputs), Ok(true));
    assert_eq!(create.line, 6);

    // A static function gets its arguments in registers, whatever the convention says.
    let fault = hook(|event| matches!(event, HookEvent::Fault { .. }));
    let mut inside = registers(0, 0x9000, 0);
    (inside.general[0], inside.general[2]) = (0x8000, 13);
    let HookEvent::Fault { vector: Some(vector), address: Some(address) } = &fault.event else {
        unreachable!()
    };
    assert_eq!(vector.value(&world, &Inputs::new(&inside)), Ok(13));
    assert_eq!(address.value(&world, &Inputs::new(&inside)), Ok(0x8000));

    let Runnable::State(when) = &kernel.runnable else { panic!() };
    let inputs = Inputs { bound: &[0x8000], ..Inputs::new(&inside) };
    assert_eq!(when.holds(&world, &inputs), Ok(true));
    let available = kernel.locks[0].available.as_ref().unwrap();
    let world = world.words(0x7000, &[0x8000]);
    for (thread, expected) in [(0x8000, true), (0x8100, false)] {
        let inputs = Inputs { bound: &[0x7000, thread], ..Inputs::new(&inside) };
        assert_eq!(available.holds(&world, &inputs), Ok(expected));
    }
    assert_eq!(
        kernel.hooks.iter().filter(|hook| matches!(hook.event, HookEvent::Enter(Activity::Switch))).count(),
        1
    );
    assert!(!kernel.test.start_hooked);
    let world = world.words(image.variable("ticks").unwrap().address, &[7]);
    assert_eq!(kernel.checks[0].holds.text(&world, &Inputs::new(&inside)).unwrap(), "7 == 3");
}

/// Two functions of one name that get their arguments in different ways: each hook looks where its function
/// does.
#[test]
fn namesakes_keep_their_own_arguments() {
    let other = "
        static __attribute__((noinline)) int deliver(void *t, int flag) { return flag + (t != 0); }
        int (*callback)(void *, int) = deliver;";
    let bytes = support::build_files(&[("small.c", KERNEL), ("other.c", other)], &["-g", "-O1"]);
    let kernel = resolve(&Image::parse("kernel", &bytes).unwrap(), GOOD).unwrap();
    let world = World::new(&kernel.image).words(0x9000, &[0x1111, 0x8000, 14]);
    let mut inside = registers(0, 0x9000, 0);
    (inside.general[0], inside.general[2]) = (0x8000, 13);
    let vectors = kernel.hooks.iter().filter_map(|hook| match &hook.event {
        HookEvent::Fault { vector: Some(vector), .. } => vector.value(&world, &Inputs::new(&inside)).ok(),
        _ => None,
    });
    assert_eq!(vectors.collect::<Vec<_>>(), [13, 14]);
}

/// A function that is there to be entered and was inlined all the same.
#[test]
fn calls_that_no_hook_sees_are_reported() {
    let inlined = KERNEL.replace(
        "__attribute__((noinline)) void readline(void)",
        "extern void readline(void); inline __attribute__((always_inline)) void readline(void)",
    );
    let kernel = resolve(&image("small.c", &inlined, &["-g", "-O1"]), GOOD).unwrap();
    let cautions: Vec<String> = kernel.cautions.iter().map(ToString::to_string).collect();
    expect!["k.toml:30:18: 'readline' was inlined where it is called in 'start', so that call is not seen; name a function around it, or build with __attribute__((noinline)) on it"]
    .assert_eq(&cautions.join("\n"));
    assert!(self::resolve(&self::kernel(), GOOD).unwrap().cautions.is_empty());
}

fn check_problems(change: &[(&str, &str)], expected: Expect) {
    let mut text = GOOD.to_string();
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    expected.assert_eq(&resolve(&kernel(), &text).expect_err("a problem"));
}

#[test]
fn problems_name_line_column_and_cure() {
    check_problems(
        &[("[threads]", "[thread]")],
        expect!["k.toml:3:2: there is no key 'thread' here; did you mean 'threads'?"],
    );
    check_problems(
        &[("current = \"current\"", "curent = \"current\"")],
        expect!["k.toml:4:1: there is no key 'curent' here; did you mean 'current'?"],
    );
    check_problems(
        &[("name = \"small\"", "name = small")],
        expect!["k.toml:2:8: string values must be quoted, expected literal string"],
    );
    check_problems(
        &[("trylock =", "kind = \"mutx\"\ntrylock =")],
        expect!["k.toml:15:8: there is no value 'mutx' here; did you mean 'mutex'?"],
    );
    check_problems(
        &[
            ("current = \"current\"", "current = \"curent\""),
            ("\"mutex_lock\"", "\"mutex_lcok\""),
            ("t->state == READY", "t->stat == READY"),
            ("\"t->tid\"", "\"t->tdi\""),
            ("ready = [{ on = \"enter readline\" }]", ""),
        ],
        expect![[r#"
            k.toml:4:12: the kernel has no variable, enumerator or function 'curent'; did you mean 'current'?
            k.toml:14:9: the kernel has no function 'mutex_lcok'; did you mean 'mutex_lock', 'mutex_unlock' or 'mutex_try'?
            k.toml:29:1: 'test.ready' is missing: where the kernel waits for input, such as [{ on = "enter readline" }]"#]],
    );
    check_problems(
        &[("enter thread_exit", "entr thread_exit")],
        expect![[
            r#"k.toml:7:17: 'entr thread_exit' is not a place: write "enter FUNCTION", "leave FUNCTION", "line FILE:NUMBER" or "text FUNCTION: TEXT""#
        ]],
    );
    check_problems(
        &[("enter thread_exit", "enter helper")],
        expect![
            "k.toml:7:17: 'helper' exists only inlined (for instance in 'timer_tick'), so it is never entered; name a function around it, or build with __attribute__((noinline)) on it"
        ],
    );
    check_problems(
        &[("enter thread_exit", "line small.c:2")],
        expect!["k.toml:7:17: no code comes from line 2 of small.c; the nearest line with code is 7"],
    );
    check_problems(
        &[("enter thread_exit", "line other.c:2")],
        expect!["k.toml:7:17: the kernel has no source file 'other.c' with line information"],
    );
    check_problems(
        &[("{ on = \"enter thread_exit\" }", "{ if = \"1\" }")],
        expect![[r#"k.toml:7:9: 'on' is missing: say where, such as on = "enter FUNCTION""#]],
    );
    check_problems(&[("arg0 > 0", "arg1 > 0")], expect!["k.toml:6:67: 'thread_new' has only 1 parameter"]);
    check_problems(
        &[("unlock = \"mutex_unlock\"\n", "")],
        expect!["k.toml:13:1: a lock needs 'unlock': the function that releases it"],
    );
    check_problems(
        &[("when = \"t->state == READY\"", "")],
        expect![[
            r#"k.toml:8:1: 'runnable.when' is missing: when thread t can run, such as "t->state == READY" (or runnable.add and runnable.remove)"#
        ]],
    );
    check_problems(
        &[("size = \"size\", ", "")],
        expect![[r#"k.toml:20:10: 'size' is missing: how many bytes, such as size = "arg0""#]],
    );
    check_problems(
        &[("[test]", "[ignore]\nfunctions = [\n  \"start\",\n  \"strat\"]\nsymbols = \"tick\"\n[test]")],
        expect![[r#"
            k.toml:32:4: the kernel has no function 'strat'; did you mean 'start'?
            k.toml:33:12: the kernel has no variable 'tick'; did you mean 'ticks' or 'timer_tick'?"#]],
    );
    check_problems(
        &[("[[heap]]", "[[heap]]\ninside = \"pages\"")],
        expect!["k.toml:20:10: there is no other heap with the name 'pages'"],
    );
    check_problems(
        &[("timer = \"timer_tick\"\n", "timer = 3\n")],
        expect!["k.toml:11:9: invalid type: integer `3`, expected a string or a list of strings"],
    );
}

fn kernels() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

fn shipped(name: &str) -> Description {
    let text = std::fs::read_to_string(kernels().join(name)).unwrap();
    Description::parse(name, &text).unwrap_or_else(|problem| panic!("{problem}"))
}

#[test]
fn pebbles_fits_every_design() {
    let description = shipped("pebbles.toml");
    for design in [
        Design::default(),
        Design { idle_loop: true, ..Design::default() },
        Design { yield_mutex: true, preempt_flag: true, ..Design::default() },
        Design { idle_user: true, ..Design::default() },
        Design::otherwise(),
    ] {
        let out =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pebbles-{}-{design:?}", std::process::id()));
        let built = Build { design, ..Build::default() }.image(&out).unwrap();
        let image = Image::parse("pebbles", &std::fs::read(&built.kernel).unwrap()).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        let kernel = Kernel::resolve(&description, &image).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert!(kernel.hooks.len() > 25);
        // The draft of a kernel with usual names fits at once.
        let draft = init::draft(&image);
        assert_eq!(resolve(&image, &draft).map(|_| ()), Ok(()), "{draft}");
    }
}

#[test]
fn pintos_and_xv6_fit_kernels_with_their_names() {
    for (description, source, flags) in [
        ("pintos.toml", include_str!("kernels/pintos.c"), &["-g", "-O1"][..]),
        ("pintos.toml", include_str!("kernels/pintos.c"), &["-g", "-O1", "-DUSERPROG"]),
        ("xv6.toml", include_str!("kernels/xv6.c"), &["-g", "-O1"]),
        ("xv6.toml", include_str!("kernels/xv6.c"), &["-g", "-O1", "-DNO_BUFFERS"]),
    ] {
        let image = image("k.c", source, flags);
        let kernel =
            Kernel::resolve(&shipped(description), &image).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert!(kernel.hooks.len() > 20, "{description}");
        // What is for another build is not there: Pintos' threads project has the function but no programs.
        let executes = kernel.hooks.iter().any(|hook| matches!(hook.event, HookEvent::Exec { .. }));
        let programs = description == "xv6.toml" || flags.contains(&"-DUSERPROG");
        assert_eq!(executes, programs, "{description} {flags:?}");
    }
}

/// Before sleep locks and `myproc`, and with a compiler that puts one trusted function into another.
#[test]
fn the_description_of_xv6_fits_older_ones_without_a_word() {
    let source = include_str!("kernels/xv6.c");
    let old = ["acquiresleep", "releasesleep", "myproc", "mycpu", "cpuid"];
    let old = old.iter().fold(source.to_string(), |text, name| text.replace(name, &format!("no_{name}")));
    for source in [source, &old] {
        let image = image("k.c", source, &["-g", "-O2"]);
        let kernel =
            Kernel::resolve(&shipped("xv6.toml"), &image).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert!(kernel.cautions.is_empty(), "{:#?}", kernel.cautions);
    }
}

/// A handler for all interrupts, a scheduler on a stack of its own, a lock that is held across the switch:
/// all drafted. The variable that says who runs is in another file than the function that makes a process,
/// each with its own copy of the types.
#[test]
fn the_draft_of_xv6_fits_at_once() {
    let source = include_str!("kernels/xv6.c");
    let variable = "struct cpu cpus[8];";
    let (types, _) = source.split_once(variable).unwrap();
    let files = [
        ("k.c", source.replace(variable, &format!("extern {variable}"))),
        ("main.c", format!("{types}{variable}\n")),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let image = Image::parse("k", &support::build_files(&files, &["-g", "-O1"])).unwrap();
    let draft = init::draft(&image);
    assert_eq!(resolve(&image, &draft).map(|_| ()), Ok(()), "{draft}");
    for line in [
        "memory = \"256M\"",
        "create = [{ on = \"leave allocproc\", thread = \"ret\", if = \"ret\" }]",
        "timer = [\"trap if tf->trapno == 0x20\"]",
        "exit = [{ on = \"enter sched\", if = \"cpus[0].proc->state == ZOMBIE\" }]",
        "switch = [\"swtch\"]",
        "when = \"!cpus[0].proc\"",
        "scheduler = \"&ptable.lock\"",
    ] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
}

/// A thread's control block at the bottom of its stack, a handler among drivers' own, a kernel that runs its
/// test by itself.
#[test]
fn the_draft_of_pintos_fits_at_once() {
    let running = |stack: &str| format!("running = \"(struct thread *)({stack} & ~0xfff)\"");
    for (flags, own) in [
        (&["-g", "-O1"][..], [running("$esp"), "start = [{ on = \"enter run_test\" }]".into()]),
        (
            &["-g", "-O1", "-DUSERPROG"],
            [
                running("($ring ? (unsigned)tss->esp0 - 4 : $esp)"),
                "start = [{ on = \"enter run_task\" }]".into(),
            ],
        ),
    ] {
        let image = image("k.c", include_str!("kernels/pintos.c"), flags);
        let draft = init::draft(&image);
        assert_eq!(resolve(&image, &draft).map(|_| ()), Ok(()), "{draft}");
        for line in own.iter().map(String::as_str).chain([
            "current = \"running\"",
            "create = [{ on = \"enter thread_unblock\", thread = \"t\" }]",
            "existing = [\"initial_thread\"]",
            "begin = \"leave thread_init\"",
            "exit = [{ on = \"enter schedule\", if = \"running->status == THREAD_DYING\" }]",
            "timer = [\"intr_handler if frame->vec_no == 0x20\"]",
            "size = \"page_cnt * 4096\"",
            "inside = \"palloc_get_multiple\"",
            "input = \"none\"",
        ]) {
            assert!(draft.contains(line), "{line}: {draft}");
        }
    }
}

/// The same for several processors: each has an idle thread of its own, and not who is woken is new but who
/// is made.
#[test]
fn the_draft_of_pintos_for_several_processors() {
    let source = include_str!("kernels/pintos.c").replace(
        "struct thread *initial_thread, *idle_thread;",
        "struct thread *initial_thread;
         struct ready_queue { int count; struct thread *idle_thread; };
         struct cpu { int id; struct ready_queue rq; } cpus[8];
         REAL static struct thread *do_thread_create(const char *name) { cpus[0].id = *name; return initial_thread; }",
    );
    let image = image("k.c", &source, &["-g", "-O1"]);
    let draft = init::draft(&image);
    assert_eq!(resolve(&image, &draft).map(|_| ()), Ok(()), "{draft}");
    for line in [
        "current = \"running\"",
        "create = [{ on = \"leave do_thread_create\", thread = \"ret\", if = \"ret\" }]",
        "when = \"t->status == THREAD_RUNNING || t->status == THREAD_READY\"",
        "thread = \"cpus[0].rq.idle_thread\"",
    ] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
}

/// A kernel of which only a function tells who runs, with an allocator that wraps another, and with a pair of
/// functions that are called as locks are and only turn interrupts off.
#[test]
fn the_draft_of_a_typical_pebbles_kernel() {
    let source = "
        enum state { NOT_YET, RUNNABLE_FIRST, RUNNABLE_LAST, SUSPENDED, EXITED };
        typedef struct tcb { int id; void *saved_esp; enum state state; } tcb_t;
        static struct { tcb_t *idle; int ticks; } scheduler;
        unsigned get_esp(void);
        tcb_t *get_tcb(void) { return *(tcb_t **)((get_esp() & ~0x1fff) + 0x1ff8); }
        void *_malloc(unsigned size) { return (void *)size; }
        void _free(void *block) { (void)block; }
        void *malloc(unsigned size) { return _malloc(size); }
        void *_memalign(unsigned alignment, unsigned size) { return (void *)(size & ~alignment); }
        void *memalign(unsigned alignment, unsigned size) { return _memalign(alignment, size); }
        void schedule(tcb_t *thread) { thread->state = RUNNABLE_FIRST; }
        void kill_thread(void) { get_tcb()->state = EXITED; }
        void thread_exit(void) { kill_thread(); }
        void free(void *block) { _free(block); }
        tcb_t *create_tcb_entry(int id) { tcb_t *new = malloc(sizeof *new); new->id = id; return new; }
        tcb_t *new_program(void) { return create_tcb_entry(1); }
        typedef struct mutex { int owner; } mutex_t;
        void mutex_lock(mutex_t *m) { m->owner = get_tcb()->id; }
        void scheduler_mutex_unlock(mutex_t *m) { m->owner = 0; }
        void mutex_unlock(mutex_t *m) { scheduler_mutex_unlock(m); }
        mutex_t mutex;
        void lock(void) { __asm__(\"cli\"); }
        void unlock(void) { __asm__(\"sti\"); }
        unsigned get_esp(void) { return 0; }
        void start(void) { lock(); mutex_lock(&mutex); mutex_unlock(&mutex); free(new_program()); free(get_tcb()); free(memalign(8, 8)); unlock(); schedule(scheduler.idle); thread_exit(); }";
    let draft = init::draft(&image("k.c", source, &["-g", "-O0"]));
    for line in [
        "running = \"*(struct tcb **)(($esp & ~0x1fff) + 0x1ff8)\"",
        "id = \"t->id\"",
        "stack-pointer = \"t->saved_esp\"",
        "create = [{ on = \"leave create_tcb_entry\", thread = \"ret\", if = \"ret\" }]",
        "when = \"t->state == RUNNABLE_FIRST || t->state == RUNNABLE_LAST\"",
        "{ on = \"leave _memalign\", address = \"ret\", size = \"arg1\", if = \"ret\" }",
        "trusted = [\"malloc\", \"memalign\", \"free\"]",
        "exit = [{ on = \"enter kill_thread\" }]",
        "thread = \"scheduler.idle\"",
        "unlock = \"scheduler_mutex_unlock\"",
    ] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
    for wrong in ["leave malloc", "lock = \"lock\""] {
        assert!(!draft.contains(wrong), "{wrong}: {draft}");
    }
    // Where its code does not say how, the function is named, and what it returns is a thread all the same.
    let other = source.replace("& ~0x1fff) + 0x1ff8", "/ 8)");
    let draft = init::draft(&image("k.c", &other, &["-g", "-O0"]));
    for line in ["# not found: what get_tcb computes", "create = [{ on = \"leave create_tcb_entry\""] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
}

/// A kernel of somebody's own: the variable that says who runs has no usual name.
#[test]
fn who_runs_is_known_by_what_it_looks_like() {
    let source = "
        typedef struct process { struct process *next; int pid; unsigned esp; int state; } PROCESS;
        struct file { int id; int state; };
        PROCESS *c, *idle_process; struct file *open_file;
        void start(void) { c = idle_process; c->pid = open_file->id; }";
    let draft = init::draft(&image("k.c", source, &["-g", "-O0"]));
    assert!(draft.contains("current = \"c\""), "{draft}");
    let two = source.replace("*idle_process", "*idle_process, *d");
    let draft = init::draft(&image("k.c", &two, &["-g", "-O0"]));
    assert!(!draft.contains("current = \"c\""), "{draft}");
}

/// Blocks that a kernel keeps are declared by their sizes, which its types decide.
#[test]
fn sizes_that_are_kept_are_numbers() {
    let image = image("k.c", include_str!("kernels/xv6.c"), &["-g", "-O1"]);
    let shipped = std::fs::read_to_string(kernels().join("xv6.toml")).unwrap();
    let with =
        |keeps: &str| resolve(&image, &shipped.replace("[test]\n", &format!("[test]\nkeeps = {keeps}\n")));
    assert_eq!(with("[\"sizeof(struct sleeplock)\", \"PAGE\"]").unwrap().test.keeps, [8, 4096]);
    let wrong = with("[\"ticks\"]").unwrap_err();
    assert!(wrong.contains("a size is a number"), "{wrong}");
}

#[test]
fn a_draft_of_anything_parses() {
    for source in [
        "void start(void) {}",
        "struct s; struct s *current; void panic(void); void panic(void) {} void start(void) { panic(); }",
        "int current; void malloc(void); void malloc(void) {} void free(void) {} void start(void) { malloc(); free(); }",
    ] {
        for flags in [&["-g"][..], &[]] {
            let image = image("any.c", source, flags);
            let draft = init::draft(&image);
            assert!(Description::parse("draft", &draft).is_ok(), "{draft}");
        }
    }
}

/// Every key of every table is explained.
#[test]
fn the_reference_is_complete() {
    let page = std::fs::read_to_string(kernels().join("../docs/kernels.md")).unwrap();
    let hooks = [
        "threads.create",
        "runnable.add",
        "test.ready",
        "user.exec",
        "user.system-call",
        "user.exit",
        "user.fault",
    ];
    let inner = ["heap.alloc", "heap.free"];
    let mut texts = vec!["zzzzzzzzzzzz = 1".to_string()];
    for table in ["threads", "runnable", "preemption", "timer", "functions", "idle", "test", "user", "ignore"]
    {
        texts.push(format!("[{table}]\nzzzzzzzzzzzz = 1"));
    }
    for table in
        ["lock", "heap", "panic", "fault", "console", "check", "sealed"].into_iter().chain(hooks).chain(inner)
    {
        let (outer, rest) = table.split_once('.').unwrap_or((table, ""));
        texts.push(match rest {
            "" => format!("[[{outer}]]\nzzzzzzzzzzzz = 1"),
            inner if outer == "heap" => format!("[[heap]]\n{inner} = [{{ zzzzzzzzzzzz = 1 }}]"),
            inner => format!("[{outer}]\n{inner} = [{{ zzzzzzzzzzzz = 1 }}]"),
        });
    }
    texts.push("[test]\ncommand-line = { zzzzzzzzzzzz = 1 }".into());
    for text in texts {
        let problem = Description::parse("k", &text).expect_err(&text).message;
        let (_, keys) = problem.split_once("known are ").unwrap_or_else(|| panic!("{text}: {problem}"));
        for key in keys.split(", ") {
            assert!(
                page.contains(&format!("`{key}`")),
                "docs/kernels.md does not explain '{key}' of: {text}"
            );
        }
    }
}

/// The header and the decoder agree.
#[test]
fn annotations_have_the_numbers_of_the_header() {
    use guest::hooks::annotation::{Annotation, decode};
    let header = std::fs::read_to_string(kernels().join("../annotations/rockfall.h")).unwrap();
    let world = World::new(&kernel()).bytes(0x5000, b"oops\0");
    let mut seen = 0;
    for line in header.lines() {
        let Some((name, number)) =
            line.trim().strip_prefix("ROCKFALL_").and_then(|rest| rest.split_once(" = "))
        else {
            continue;
        };
        let mut registers = registers(0, 0, 0);
        registers.general[guest::state::CX] = number.trim_end_matches(',').parse().unwrap();
        registers.general[guest::state::BX] = 0x5000;
        let annotation = decode(&registers, &world).unwrap_or_else(|| panic!("{name}"));
        if let Annotation::Panic { message } = &annotation {
            assert_eq!(message, "oops");
        }
        let own: String = format!("{annotation:?}").chars().take_while(char::is_ascii_alphabetic).collect();
        assert_eq!(own.to_uppercase(), name.replace('_', ""));
        seen += 1;
    }
    assert!(seen > 20);
    // It compiles for the kernels that use it, and vanishes when asked to.
    let program = format!(
        "{header}\nvoid start(void) {{ rockfall_switch(3); rockfall_panic(\"x\"); rockfall_point(); }}"
    );
    let cpuids = |flags: &[&str]| {
        let image = image("annotated.c", &program, flags);
        image
            .segments
            .iter()
            .flat_map(|s| s.bytes.windows(2).filter(|w| *w == [0x0f, 0xa2]).collect::<Vec<_>>())
            .count()
    };
    assert_eq!(cpuids(&["-O1", "-Wall", "-Werror"]), 3);
    assert_eq!(cpuids(&["-O1", "-DROCKFALL_OFF"]), 0);
}

/// What the kernels say when a test has failed, or a program was killed, is a finding.
#[test]
fn what_kernels_say_of_failures_is_a_finding() {
    let patterns = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(Path::new("../../kernels").join(name)).expect("it is there");
        let table: toml::Table = text.parse().expect("TOML");
        let console = table["console"].as_array().expect("a list").iter();
        console.map(|console| console["pattern"].as_str().expect("text").to_string()).collect()
    };
    for (name, line) in [
        ("xv6.toml", "pid 5 cat: trap 14 err 5 on cpu 0 eip 0x1b addr 0xffffffff--kill proc"),
        ("xv6.toml", "mytest: FAIL 2 bytes"),
        ("pintos.toml", "(alarm-single) FAIL: thread 0 woke up out of order (20 > 10)!"),
        ("pintos.toml", "(child) wait(exec()): FAILED"),
    ] {
        assert!(patterns(name).iter().any(|pattern| line.contains(pattern)), "{name}: {line}");
    }
}

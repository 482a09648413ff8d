//! A small make-believe kernel for golden reports: four source files, addresses that are file and line, and
//! executions in a few words.
//!
//! A place is `vanish.c:8`; a stack is places joined by ` < `, innermost first. The function is the one that
//! the line lies in. An execution is steps, each a thread, what it did, and how it ended.

use detect::{Config, Detectors, Finding};
use trace::{
    Access, AccessKind, Action, Event, Frame, LockId, PhysAddr, Point, PointKind, Resolve, Schedule,
    Sighting, Stack, Step, StepEnd, ThreadId, VirtAddr, Waiting,
};

const FILES: [(&str, &str); 6] = [
    (
        "kern/fork.c",
        "\
/* Threads beget threads. */
int thread_fork(void)
{
    struct tcb *child = malloc(sizeof(*child));
    if (!child)
        return -1;
    child->tid = next_tid();
    make_runnable(child);
    /* the child may run, and end, before the next line */
    return child->tid;
}

int thread_fork_wrapper(void)
{
    return thread_fork();
}
",
    ),
    (
        "kern/vanish.c",
        "\
void vanish(void)
{
    struct tcb *me = current;
    mutex_lock(&me->parent->lock);
    list_remove(&me->siblings);
    me->state = EXITED;
    mutex_unlock(&me->parent->lock);
    free(me);
    schedule();
}

void transfer(struct account *from, struct account *to)
{
    mutex_lock(&from->lock);
    mutex_lock(&to->lock);
    to->balance += from->balance;
    mutex_unlock(&to->lock);
    mutex_unlock(&from->lock);
}
",
    ),
    (
        "kern/sync.c",
        "\
void mutex_lock(mutex_t *m)
{
    while (xchg(&m->locked, 1))
        block_on(m);
}

void mutex_unlock(mutex_t *m)
{
    m->locked = 0;
}

void free(void *block)
{
    lmm_free(block);
}

void *malloc(size_t size)
{
    return lmm_alloc(size);
}

void panic(const char *message)
{
    halt();
}
",
    ),
    (
        "kern/sched.c",
        "\
void schedule(void)
{
    context_switch(next_thread());
}

void deschedule(int *reject)
{
    if (*reject)
        return;
    current->state = BLOCKED;
    schedule();
}

void make_runnable(struct tcb *t)
{
    t->state = READY;
}
",
    ),
    (
        "user/paradise.c",
        "\
void consumer(void)
{
    while (!ready)
        deschedule(&ready);
    num_in_section++;
    assert(num_in_section == 1);
    num_in_section--;
}

void producer(void)
{
    ready = 1;
    make_runnable(waiter);
}
",
    ),
    (
        "kern/trap.c",
        "\
int syscall(int number)
{
    return table[number]();
}

void scheduler(void)
{
    for (;;)
        context_switch(next_thread());
}
",
    ),
];

const DATA: [(u64, &str); 8] = [
    (0x9000, "account a.lock"),
    (0x9100, "account b.lock"),
    (0x9200, "parent->lock"),
    (0x15_a8f0, "child->tid"),
    (0x15_a8f4, "child->state"),
    (0x8000, "ready"),
    (0x8004, "num_in_section"),
    (0x9008, "a.balance"),
];

pub struct Program;

fn pc(place: &str) -> VirtAddr {
    let (file, line) = place.split_once(':').unwrap();
    let at = FILES.iter().position(|(name, _)| name.ends_with(&format!("/{file}"))).expect(place);
    VirtAddr(0x10_0000 + at as u64 * 0x1000 + line.parse::<u64>().unwrap() * 4)
}

impl Program {
    pub fn source(file: &str) -> Option<String> {
        FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_string())
    }
}

impl Resolve for Program {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        let unknown = vec![Frame { pc, function: None, file: None, line: None, interrupted: false }];
        let Some(offset) = pc.0.checked_sub(0x10_0000) else { return unknown };
        let Some((file, text)) = FILES.get((offset / 0x1000) as usize) else { return unknown };
        let line = (offset % 0x1000 / 4) as usize;
        let before =
            text.lines().take(line).filter(|line| line.contains('(') && !line.starts_with([' ', '/']));
        let function = before.last().and_then(|head| {
            let name = head.split('(').next()?;
            Some(name.rsplit([' ', '*']).next()?.to_string())
        });
        vec![Frame {
            pc,
            function,
            file: Some((*file).to_string()),
            line: Some(line as u32),
            interrupted: false,
        }]
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        let known = DATA.iter().find(|(at, _)| *at == addr.0).map(|(_, name)| (*name).to_string());
        let word = addr.0.checked_sub(POOL).filter(|offset| *offset < 0x1_0000);
        known.or_else(|| Some(format!("pool.word{}", word? / 8)))
    }
}

/// Where words begin that are called `pool.word0` and so on.
const POOL: u64 = 0x3_0000;

pub fn addr(name: &str) -> u64 {
    if let Some(number) = name.strip_prefix("pool.word") {
        return POOL + 8 * number.parse::<u64>().expect(name);
    }
    DATA.iter().find(|(_, known)| *known == name).unwrap_or_else(|| panic!("{name}")).0
}

pub fn lock(name: &str) -> LockId {
    LockId(addr(name))
}

fn stack(places: &str) -> Stack {
    let places = places.split(" < ").filter(|place| !place.is_empty());
    places.flat_map(|place| Program.frames(pc(place))).collect()
}

pub enum Op {
    Read(&'static str, &'static str),
    Write(&'static str, &'static str),
    Do(Action, &'static str),
}

pub enum End {
    At(PointKind),
    Stuck(Vec<(u32, Option<LockId>, Option<u32>, &'static str)>),
    Crashed,
}

pub fn step(thread: u32, ops: Vec<Op>, end: End, at: &str) -> Step {
    let (mut accesses, mut events, mut sightings) = (Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        let mut touch = |kind, name: &str, place: &str| {
            let (addr, stack) = (VirtAddr(addr(name)), stack(place));
            let pc = stack[0].pc;
            sightings.push(Sighting {
                access: accesses.len(),
                stack,
                pointers: Vec::new(),
                object: None,
                overwritten: false,
            });
            accesses.push(Access { phys: PhysAddr(addr.0), addr, size: 4, kind, atomic: false, pc });
        };
        match op {
            Op::Read(name, place) => touch(AccessKind::Read, name, place),
            Op::Write(name, place) => touch(AccessKind::Write, name, place),
            Op::Do(action, places) => {
                let stack = stack(places);
                events.push(Event {
                    action,
                    pc: stack[0].pc,
                    accesses_before: accesses.len(),
                    stack: Some(stack),
                });
            }
        }
    }
    let here = stack(at);
    let end = match end {
        End::At(kind) => StepEnd::Point(Point { kind, thread: ThreadId(thread), pc: here[0].pc }),
        End::Crashed => StepEnd::Crashed,
        End::Stuck(all) => StepEnd::Stuck {
            waiting: all
                .into_iter()
                .map(|(thread, lock, owner, at)| Waiting {
                    thread: ThreadId(thread),
                    lock,
                    owner: owner.map(ThreadId),
                    loops: false,
                    stack: stack(at),
                })
                .collect(),
        },
    };
    Step {
        choice: ThreadId(thread).into(),
        thread: ThreadId(thread),
        accesses,
        events,
        instructions: 1200,
        end,
        stack: here,
        sightings,
        remarks: Vec::new(),
    }
}

pub fn finding(steps: &[Step]) -> Finding {
    let mut findings = Vec::new();
    let mut detectors = Detectors::new(&Config::default());
    for (at, step) in steps.iter().enumerate() {
        assert!(findings.is_empty(), "found too early, before step {at}");
        detectors.observe(step, &mut findings);
    }
    findings.into_iter().next().expect("a finding")
}

pub fn schedule(steps: &[Step]) -> Schedule {
    Schedule(steps.iter().map(|step| step.choice).collect())
}

//! Tiny concurrent programs as data, and the [`Subject`] that runs them: what the explorer is proved on.
//!
//! A thread is a list of instructions over shared variables, locks, semaphores, heap blocks and one register of its
//! own. Steps go from one preemption point to the next and may hold many accesses. What a kernel does to an explorer
//! is here in small: threads that block in their own step and are woken by another's, locks that are retried after
//! the wakeup, loops that wait for a variable and are woken by any write to it, threads made and waited for, stretches
//! with interrupts off, switches that the program makes by itself in the middle of a step, blocks that are freed
//! without being touched, looks at what every choice changes.
//!
//! Text form: instructions separated by blanks, threads by `|`: `lock0 read0 add1 unlock0 | spin0=1 assert1`.

mod program;
pub mod programs;

pub use program::{Instr, Program};

use std::sync::Arc;
use trace::{
    Access, AccessKind, Action, Actor, Choice, ChoiceSet, Event, LockId, PhysAddr, Point, PointKind,
    PointRule, PointSet, Stack, Step, StepEnd, Subject, Taking, ThreadId, VirtAddr, Waiting,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// Not created yet.
    Absent,
    Ready,
    Lock(u8),
    Semaphore(u8),
    /// Until one of the two is written.
    Write(u8, u8),
    Join(u8),
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Thread {
    pc: u16,
    register: u8,
    status: Status,
}

const VARIABLES: u64 = 0x1000;
const SEMAPHORES: u64 = 0x2000;
const LOCKS: u64 = 0x3000;
const STATUSES: u64 = 0x4000;
const RUN_QUEUE: u64 = 0x5000;
const BLOCKS: u64 = 0x10000;
const BLOCK_SIZE: u64 = 32;
const CELLS: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Semaphore {
    count: u8,
    queue: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Toy {
    program: Arc<Program>,
    threads: Vec<Thread>,
    variables: [u8; CELLS],
    owners: [Option<u8>; CELLS],
    semaphores: Vec<Semaphore>,
    allocated: [bool; CELLS],
    /// Who runs with interrupts off.
    exclusive: Option<u8>,
    current: Option<u8>,
    over: bool,
    /// Steps so far, of whomever.
    steps: u8,
    /// The program looks at who can run, so that this counts as shared memory.
    run_queue: bool,
}

/// What a step has recorded so far.
#[derive(Default)]
struct Record {
    accesses: Vec<Access>,
    events: Vec<Event>,
    instructions: u64,
    pc: VirtAddr,
}

/// How an instruction left its thread.
enum After {
    Next,
    /// At a preemption point behind it.
    Point(PointKind),
    Blocked(Status),
    Panic(String),
    End,
    /// The program goes over to the next thread that can run, where nobody can interfere.
    GoOver,
}

impl Toy {
    #[must_use]
    pub fn new(program: Program) -> Self {
        let created = |thread: usize| {
            let create = Instr::Create(u8::try_from(thread).expect("few threads"));
            program.threads.iter().flatten().any(|instr| *instr == create)
        };
        let threads = (0..program.threads.len())
            .map(|thread| Thread {
                pc: 0,
                register: 0,
                status: if created(thread) { Status::Absent } else { Status::Ready },
            })
            .collect();
        Self {
            threads,
            run_queue: program.threads.iter().flatten().any(|instr| *instr == Instr::GoOver),
            program: Arc::new(program),
            variables: [0; CELLS],
            owners: [None; CELLS],
            semaphores: vec![Semaphore { count: 0, queue: Vec::new() }; CELLS],
            allocated: [true; CELLS],
            exclusive: None,
            current: None,
            over: false,
            steps: 0,
        }
    }

    /// All that distinguishes two states.
    #[must_use]
    pub fn state(&self) -> String {
        let registers: Vec<_> = self.threads.iter().map(|thread| (thread.pc, thread.register)).collect();
        let counts: Vec<_> = self.semaphores.iter().map(|semaphore| semaphore.count).collect();
        format!("{:?} {registers:?} {:?} {counts:?} {:?}", self.variables, self.owners, self.allocated)
    }

    fn ready(&self) -> impl Iterator<Item = u8> + '_ {
        (0..).zip(&self.threads).filter(|(_, thread)| thread.status == Status::Ready).map(|(id, _)| id)
    }

    fn queue_changes(&self, record: &mut Record) {
        if self.run_queue {
            record.access(AccessKind::Write, RUN_QUEUE, 0);
        }
    }

    fn wake(&mut self, record: &mut Record, waits: impl Fn(&Status) -> bool) {
        for id in 0..self.threads.len() {
            if waits(&self.threads[id].status) {
                self.threads[id].status = Status::Ready;
                let thread = ThreadId(u32::try_from(id).expect("few threads"));
                record.event(Action::Wake { thread });
                self.queue_changes(record);
            }
        }
    }

    fn written(&mut self, record: &mut Record, variable: u8) {
        self.wake(record, |status| matches!(status, Status::Write(a, b) if *a == variable || *b == variable));
    }

    fn acquire(&mut self, me: u8, lock: u8, record: &mut Record, attempt: bool) -> bool {
        let id = lock_id(lock);
        let free = self.owners[lock as usize].is_none();
        let taking = Taking { attempt, ..Taking::default() };
        record.event(Action::LockRequest { lock: id, taking });
        if free {
            self.owners[lock as usize] = Some(me);
            record.event(Action::Lock { lock: id, taking });
        }
        free
    }

    fn execute(&mut self, me: u8, instr: Instr, points: &PointSet, record: &mut Record) -> After {
        let this = usize::from(me);
        let wants = |rule: PointRule| points.rules.contains(&rule);
        match instr {
            Instr::Read(variable) => {
                record.access(AccessKind::Read, VARIABLES, variable);
                self.threads[this].register = self.variables[variable as usize];
            }
            Instr::Write(variable, value) => {
                record.access(AccessKind::Write, VARIABLES, variable);
                self.variables[variable as usize] = value;
                self.written(record, variable);
            }
            Instr::Store(variable) => {
                record.access(AccessKind::Write, VARIABLES, variable);
                self.variables[variable as usize] = self.threads[this].register.wrapping_add(1);
                self.written(record, variable);
            }
            Instr::Add(variable) => {
                record.access(AccessKind::Update, VARIABLES, variable);
                let cell = &mut self.variables[variable as usize];
                *cell = cell.wrapping_add(1);
                self.threads[this].register = *cell;
                self.written(record, variable);
            }
            Instr::SkipUnless(value, count) => {
                if self.threads[this].register != value {
                    self.threads[this].pc += u16::from(count);
                }
            }
            Instr::Point(_) => {}
            Instr::Lock(lock) => {
                if !self.acquire(me, lock, record, false) {
                    let owner = self.owners[lock as usize].map(|owner| ThreadId(owner.into()));
                    record.event(Action::Block { lock: Some(lock_id(lock)), owner });
                    return After::Blocked(Status::Lock(lock));
                }
            }
            Instr::TryLock(lock) => {
                let got = self.acquire(me, lock, record, true);
                self.threads[this].register = u8::from(got);
            }
            Instr::Unlock(lock) => {
                record.event(Action::Unlock { lock: lock_id(lock) });
                if self.owners[lock as usize] == Some(me) {
                    self.owners[lock as usize] = None;
                    self.wake(record, |status| *status == Status::Lock(lock));
                }
                if wants(PointRule::Unlock) {
                    return After::Point(PointKind::Unlock);
                }
            }
            Instr::Yield => {
                record.event(Action::Yield);
                return After::Point(PointKind::Voluntary);
            }
            Instr::Wait(semaphore) => {
                record.access(AccessKind::Update, SEMAPHORES, semaphore);
                let cell = &mut self.semaphores[semaphore as usize];
                if cell.count == 0 {
                    cell.queue.push(me);
                    record.event(Action::Block { lock: None, owner: None });
                    return After::Blocked(Status::Semaphore(semaphore));
                }
                cell.count -= 1;
            }
            Instr::Signal(semaphore) => {
                record.access(AccessKind::Update, SEMAPHORES, semaphore);
                let cell = &mut self.semaphores[semaphore as usize];
                if cell.queue.is_empty() {
                    cell.count += 1;
                } else {
                    let first = cell.queue.remove(0);
                    let woken = &mut self.threads[usize::from(first)];
                    woken.status = Status::Ready;
                    woken.pc += 1;
                    record.event(Action::Wake { thread: ThreadId(first.into()) });
                    self.queue_changes(record);
                }
                if wants(PointRule::Wake) {
                    return After::Point(PointKind::Wake);
                }
            }
            Instr::Spin(variable, value) => {
                record.access(AccessKind::Read, VARIABLES, variable);
                if self.variables[variable as usize] != value {
                    record.event(Action::Block { lock: None, owner: None });
                    return After::Blocked(Status::Write(variable, variable));
                }
            }
            Instr::SpinEither(a, b) => {
                record.access(AccessKind::Read, VARIABLES, a);
                if self.variables[a as usize] == 0 {
                    record.access(AccessKind::Read, VARIABLES, b);
                    if self.variables[b as usize] == 0 {
                        record.event(Action::Block { lock: None, owner: None });
                        return After::Blocked(Status::Write(a, b));
                    }
                }
                self.threads[this].register = self.variables[a as usize];
            }
            Instr::Create(child) => {
                record.access(AccessKind::Write, STATUSES, child);
                self.queue_changes(record);
                if let Some(thread) = self.threads.get_mut(usize::from(child))
                    && thread.status == Status::Absent
                {
                    thread.status = Status::Ready;
                    record.event(Action::Create { child: ThreadId(child.into()) });
                }
                if wants(PointRule::Create) {
                    return After::Point(PointKind::Create);
                }
            }
            Instr::Join(thread) => {
                record.access(AccessKind::Read, STATUSES, thread);
                let other = self.threads.get(usize::from(thread)).map(|other| other.status);
                if thread != me && other.is_some_and(|status| status != Status::Done) {
                    record.event(Action::Block { lock: None, owner: Some(ThreadId(thread.into())) });
                    return After::Blocked(Status::Join(thread));
                }
            }
            Instr::Alloc(block) => {
                let (addr, phys) = block_at(block);
                record.event(Action::Alloc { addr, phys, size: BLOCK_SIZE });
                self.allocated[block as usize] = true;
            }
            Instr::Free(block) => {
                let (addr, phys) = block_at(block);
                record.event(Action::Free { addr, phys, size: Some(BLOCK_SIZE) });
                self.allocated[block as usize] = false;
            }
            Instr::Use(block) => {
                let (addr, phys) = block_at(block);
                record.access_at(AccessKind::Read, addr.offset(8), PhysAddr(phys.0 + 8));
                if !self.allocated[block as usize] {
                    return After::Panic(format!(
                        "block {block} used after free at {me}:{}",
                        self.threads[this].pc
                    ));
                }
            }
            Instr::Assert(value) => {
                if self.threads[this].register != value {
                    return After::Panic(format!("assertion at {me}:{}", self.threads[this].pc));
                }
            }
            Instr::Off => self.exclusive = Some(me),
            Instr::On => self.exclusive = None,
            Instr::GoOver => return After::GoOver,
            Instr::End => return After::End,
            Instr::Peek => {
                record.event(Action::Exposed);
                self.threads[this].register = self.steps;
            }
        }
        After::Next
    }

    /// Whether the thread, about to execute `instr` at `pc`, is at a preemption point.
    fn point_before(instr: Instr, pc: VirtAddr, points: &PointSet) -> Option<PointKind> {
        let race = PointRule::Race { pc, thread: None, last_call: None, system_call: None };
        if points.rules.contains(&race) {
            return Some(PointKind::Race);
        }
        let everywhere = || points.rules.contains(&PointRule::Everywhere).then_some(PointKind::Access);
        match instr {
            Instr::Lock(_) | Instr::TryLock(_) => {
                points.rules.contains(&PointRule::Lock).then_some(PointKind::Lock).or_else(everywhere)
            }
            Instr::Point(line) => {
                let rule = PointRule::Line { file: "toy".to_string(), line: line.into() };
                points.rules.contains(&rule).then_some(PointKind::Line)
            }
            Instr::SkipUnless(..)
            | Instr::Assert(_)
            | Instr::Off
            | Instr::On
            | Instr::GoOver
            | Instr::End => None,
            _ => everywhere(),
        }
    }

    /// Runs `me` until something ends the step; says what.
    fn run(&mut self, mut me: u8, points: &PointSet, record: &mut Record) -> StepEnd {
        let mut fresh = true;
        loop {
            let this = usize::from(me);
            let pc = self.threads[this].pc;
            record.pc = self.place(me);
            let Some(&instr) = self.program.threads[this].get(usize::from(pc)) else {
                self.threads[this].status = Status::Done;
                record.event(Action::Exit);
                record.access(AccessKind::Write, STATUSES, me);
                self.wake(record, |status| *status == Status::Join(me));
                return self.give_way(me, record);
            };
            let ahead = if fresh { None } else { Self::point_before(instr, record.pc, points) };
            if let Some(kind) = ahead {
                return self.stop(me, kind);
            }
            fresh = false;
            record.instructions += 1;
            match self.execute(me, instr, points, record) {
                After::Next => self.threads[this].pc += 1,
                After::Point(kind) => {
                    self.threads[this].pc += 1;
                    return self.stop(me, kind);
                }
                After::Blocked(status) => {
                    self.threads[this].status = status;
                    return self.give_way(me, record);
                }
                After::Panic(message) => {
                    self.over = true;
                    record.event(Action::Panic { message });
                    return StepEnd::Crashed;
                }
                After::End => {
                    self.over = true;
                    record.event(Action::Console { line: format!("by {me}:{pc}") });
                    return StepEnd::Finished;
                }
                After::GoOver => {
                    self.threads[this].pc += 1;
                    record.access(AccessKind::Read, RUN_QUEUE, 0);
                    let next = self.ready().find(|&other| other > me).or_else(|| self.ready().next());
                    if let Some(other) = next.filter(|&other| other != me) {
                        record.event(Action::Switch { to: ThreadId(other.into()) });
                        me = other;
                        self.exclusive = None;
                    }
                }
            }
        }
    }

    fn stop(&mut self, me: u8, kind: PointKind) -> StepEnd {
        if kind.voluntary() {
            self.exclusive = None;
            self.current = None;
        } else {
            self.current = Some(me);
        }
        StepEnd::Point(self.point(me, kind))
    }

    /// The thread cannot go on.
    fn give_way(&mut self, me: u8, record: &mut Record) -> StepEnd {
        self.queue_changes(record);
        self.exclusive = None;
        self.current = None;
        if self.ready().next().is_some() {
            let looping = matches!(self.threads[usize::from(me)].status, Status::Write(..));
            let kind = if looping { PointKind::Blocked } else { PointKind::Voluntary };
            return StepEnd::Point(self.point(me, kind));
        }
        self.over = true;
        record.event(Action::Console { line: self.state() });
        let finished = |thread: &Thread| matches!(thread.status, Status::Done | Status::Absent);
        if self.threads.iter().all(finished) {
            return StepEnd::Finished;
        }
        let waiting = (0..).zip(&self.threads).filter(|(_, thread)| !finished(thread));
        let waiting = waiting.map(|(id, thread)| {
            let (lock, owner) = match thread.status {
                Status::Lock(lock) => (Some(lock_id(lock)), self.owners[lock as usize]),
                Status::Join(other) => (None, Some(other)),
                _ => (None, None),
            };
            let owner = owner.map(|owner| ThreadId(owner.into()));
            Waiting { thread: ThreadId(id), lock, owner, loops: false, stack: Stack::new() }
        });
        StepEnd::Stuck { waiting: waiting.collect() }
    }

    fn point(&self, me: u8, kind: PointKind) -> Point {
        Point { kind, thread: ThreadId(me.into()), pc: self.place(me) }
    }

    fn place(&self, me: u8) -> VirtAddr {
        VirtAddr((u64::from(me) + 1) << 16 | u64::from(self.threads[usize::from(me)].pc))
    }
}

const fn lock_id(lock: u8) -> LockId {
    LockId(LOCKS + 8 * lock as u64)
}

const fn block_at(block: u8) -> (VirtAddr, PhysAddr) {
    let at = BLOCKS + 0x100 * block as u64;
    (VirtAddr(at), PhysAddr(at))
}

impl Record {
    fn access(&mut self, kind: AccessKind, base: u64, cell: u8) {
        let at = base + 8 * u64::from(cell);
        self.access_at(kind, VirtAddr(at), PhysAddr(at));
    }

    fn access_at(&mut self, kind: AccessKind, addr: VirtAddr, phys: PhysAddr) {
        self.accesses.push(Access {
            phys,
            addr,
            size: 4,
            kind,
            atomic: kind == AccessKind::Update,
            pc: self.pc,
        });
    }

    fn event(&mut self, action: Action) {
        let accesses_before = self.accesses.len();
        self.events.push(Event { action, pc: self.pc, accesses_before, stack: None });
    }
}

impl Subject for Toy {
    fn enabled(&self) -> ChoiceSet {
        let exclusive = self.exclusive;
        let allowed = |id: &u8| !self.over && exclusive.is_none_or(|owner| owner == *id);
        self.ready().filter(allowed).map(|id| ThreadId(id.into()).into()).collect()
    }

    fn current(&self) -> Option<Actor> {
        self.current.map(|id| ThreadId(id.into()).into())
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let thread = choice.thread().expect("a toy has threads only");
        let mut record = Record::default();
        let me = u8::try_from(thread.0).expect("few threads");
        assert_eq!(self.threads[usize::from(me)].status, Status::Ready);
        let end = self.run(me, points, &mut record);
        self.steps = self.steps.wrapping_add(1);
        Step {
            choice,
            thread,
            accesses: record.accesses,
            events: record.events,
            instructions: record.instructions.max(1),
            end,
            stack: Stack::new(),
            sightings: Vec::new(),
        }
    }
}

//! Tiny concurrent programs as data, and the [`Subject`] that runs them: what the explorer is proved on.
//!
//! A thread is a list of instructions over shared variables, locks, semaphores, heap blocks and one register
//! of its own. Steps go from one preemption point to the next and may hold many accesses. What a kernel does
//! to an explorer is here in small: threads that block in their own step and are woken by another's, locks
//! that are retried after the wakeup, loops that wait for a variable and are woken by any write to it,
//! threads made and waited for, stretches with interrupts off, switches that the program makes by itself in
//! the middle of a step, blocks that are freed without being touched, looks at what every choice changes,
//! outcomes that nothing determines, transactions.
//!
//! On processors there are several such programs at once, interrupts that come between any two steps unless
//! they are masked, by themselves or sent by another processor, and stores that wait in a buffer until it
//! drains. A handler has a register of its own, and while it runs nothing else does on its processor. When it
//! is done nobody is current, as when a thread ends. An instruction that waits for the buffer to drain ends
//! the step before it.
//!
//! Text form: instructions separated by blanks, threads by `|`: `lock0 read0 add1 unlock0 | spin0=1 assert1`;
//! see [`Program`] for processors.

mod execute;
mod program;
pub mod programs;
mod transaction;

pub use program::{Handler, Instr, Kind, Program};

use std::sync::Arc;
use trace::{
    Access, AccessKind, Action, Actor, Choice, ChoiceSet, CpuId, Event, LockId, PhysAddr, Point, PointKind,
    PointRule, PointSet, Stack, Step, StepEnd, Subject, ThreadId, VirtAddr, Waiting,
};
use transaction::Transaction;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    /// The thread is not created yet.
    Absent,
    Ready,
    Lock(u8),
    Semaphore(u8),
    /// Waits until one of the two variables is written.
    Write(u8, u8),
    Join(u8),
    /// Waits until an interrupt has been handled.
    Halt,
    Done,
}

impl Status {
    fn waits_for(self, variable: u8) -> bool {
        matches!(self, Status::Write(a, b) if a == variable || b == variable)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Thread {
    pc: u16,
    register: u8,
    status: Status,
    transaction: Option<Transaction>,
    /// Since it last needed its store buffer to be empty.
    stored: bool,
    /// Whether it waits, or waited, with interrupts off, so that they are off again when it goes on.
    off: bool,
}

const VARIABLES: u64 = 0x1000;
const SEMAPHORES: u64 = 0x2000;
const LOCKS: u64 = 0x3000;
const STATUSES: u64 = 0x4000;
const RUN_QUEUE: u64 = 0x5000;
const PENDING: u64 = 0x6000;
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
    /// Threads or processors, and then the handlers of interrupts.
    threads: Vec<Thread>,
    variables: [u8; CELLS],
    owners: [Option<u8>; CELLS],
    semaphores: Vec<Semaphore>,
    allocated: [bool; CELLS],
    /// The thread that runs with interrupts off.
    exclusive: Option<u8>,
    /// For each processor: whether its interrupts are off, which handler it is in, and its store buffer,
    /// oldest first.
    masked: Vec<bool>,
    handling: Vec<Option<u8>>,
    buffers: Vec<Vec<Stored>>,
    /// For each handler: whether its interrupt is pending.
    pending: Vec<bool>,
    /// The outcome of the step that is being taken.
    outcome: u8,
    current: Option<Actor>,
    over: bool,
    /// How many steps were taken so far, by any actor.
    steps: u8,
    /// Whether the program looks at who can run, so that this counts as shared memory.
    run_queue: bool,
}

/// A store that waits in a buffer.
#[derive(Clone, Copy, Debug)]
struct Stored {
    variable: u8,
    value: u8,
    /// In which step it was made.
    step: u8,
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
    /// The thread stands at a preemption point behind the instruction.
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
        let uses = |instr: Instr| program.instructions().any(|other| other == instr);
        let number = |at: usize| u8::try_from(at).expect("few threads");
        let (bodies, handlers) = (program.threads.len(), program.handlers.len());
        let threads = (0..bodies + handlers)
            .map(|at| {
                let absent = at >= bodies || uses(Instr::Create(number(at)));
                let status = if absent { Status::Absent } else { Status::Ready };
                Thread { pc: 0, register: 0, status, transaction: None, stored: false, off: false }
            })
            .collect();
        Self {
            threads,
            run_queue: uses(Instr::GoOver),
            masked: vec![false; bodies],
            handling: vec![None; bodies],
            buffers: vec![Vec::new(); bodies],
            // Interrupts that no instruction sends come by themselves, once.
            pending: (0..handlers).map(|at| !uses(Instr::Send(number(at)))).collect(),
            outcome: 0,
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

    /// The handler of an interrupt, by its number among them.
    fn handler(&self, me: u8) -> Option<usize> {
        usize::from(me).checked_sub(self.program.threads.len())
    }

    /// The processor that `me` runs on; a thread has one of its own.
    fn home(&self, me: u8) -> u8 {
        self.handler(me).map_or(me, |handler| self.program.handlers[handler].cpu)
    }

    fn body(&self, me: u8) -> &[Instr] {
        match self.handler(me) {
            Some(handler) => &self.program.handlers[handler].body,
            None => &self.program.threads[usize::from(me)],
        }
    }

    fn actor(&self, me: u8) -> Actor {
        match self.handler(me).map(|handler| &self.program.handlers[handler]) {
            Some(&Handler { cpu, vector, .. }) => Actor::Interrupt { cpu: CpuId(cpu), vector },
            None if self.program.kind.has_threads() => ThreadId(me.into()).into(),
            None => CpuId(me).into(),
        }
    }

    /// The youngest store to the variable in the buffer of the processor that `me` runs on, or what memory
    /// holds.
    fn visible(&self, me: u8, variable: u8) -> u8 {
        let buffer = &self.buffers[usize::from(self.home(me))];
        let buffered = buffer.iter().rfind(|stored| stored.variable == variable);
        buffered.map_or(self.variables[usize::from(variable)], |stored| stored.value)
    }

    /// Whether `me` can be chosen.
    fn can_go_on(&self, me: u8) -> bool {
        let (home, status) = (usize::from(self.home(me)), self.threads[usize::from(me)].status);
        match self.handler(me) {
            None => status == Status::Ready && self.handling[home].is_none() && !self.waits_to_drain(me),
            Some(_) if self.handling[home] == Some(me) => status == Status::Ready && !self.waits_to_drain(me),
            Some(handler) => {
                let there = self.threads[home].status != Status::Absent;
                self.pending[handler] && there && !self.masked[home] && self.handling[home].is_none()
            }
        }
    }

    /// The highest outcome that the next step of `me` can have.
    fn outcome_max(&self, me: u8) -> u8 {
        match self.body(me).get(usize::from(self.threads[usize::from(me)].pc)) {
            Some(&Instr::Coin(max)) => max,
            Some(&Instr::Begin(..)) => u8::from(!self.is_transacting(me)),
            Some(&Instr::Maybe(variable)) => u8::from(self.variables[usize::from(variable)] != 0),
            _ => 0,
        }
    }

    fn wake(&mut self, record: &mut Record, waits: impl Fn(&Self, u8, &Status) -> bool) {
        for id in 0..self.threads.len() {
            let number = u8::try_from(id).expect("few threads");
            if waits(self, number, &self.threads[id].status) {
                self.threads[id].status = Status::Ready;
                record.event(Action::Wake { thread: ThreadId(number.into()) });
                self.queue_changes(record);
            }
        }
    }

    fn written(&mut self, record: &mut Record, variable: u8) {
        self.wake(record, |_, _, status| status.waits_for(variable));
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
            | Instr::Poke
            | Instr::End => None,
            Instr::Coin(_) | Instr::Maybe(_) => Some(PointKind::Outcome),
            Instr::Begin(..) => Some(PointKind::Transaction),
            _ => everywhere(),
        }
    }

    /// Runs `me` until something ends the step; says what.
    fn run(&mut self, mut me: u8, points: &PointSet, record: &mut Record) -> StepEnd {
        let (mut fresh, first) = (true, me);
        self.resume(me, record);
        let mut settles = self.interrupts_off_again(me);
        loop {
            let this = usize::from(me);
            let settled = settles && self.exclusive != Some(me);
            settles &= !settled;
            let shows = || !record.accesses.is_empty() || record.events.iter().any(|e| e.action.shows());
            if settled && me == first && shows() {
                return self.stop(me, PointKind::Resumed);
            }
            if me != first && !settles && self.program.kind == Kind::HandingOver {
                self.current = None;
                return self.point_or_end(first, record);
            }
            if let Some(kind) = self.commit(me, fresh, points) {
                return self.stop(me, kind);
            }
            let pc = self.threads[this].pc;
            record.pc = self.place(me);
            let Some(&instr) = self.body(me).get(usize::from(pc)) else {
                if self.handler(me).is_some() {
                    return self.handled(me, record);
                }
                self.exit(me, record);
                match self.hand_over(me, record) {
                    Some(next) => (me, fresh, settles) = (next, false, self.interrupts_off_again(next)),
                    None => return self.give_way(me, record),
                }
                continue;
            };
            let sealed = fresh || settles || self.is_sealed(me);
            let ahead = if sealed { None } else { Self::point_before(instr, record.pc, points) };
            if let Some(kind) = ahead {
                return self.stop(me, kind);
            }
            if self.is_at_fence(me, instr, fresh) {
                return self.stop(me, PointKind::Access);
            }
            if self.waits_to_drain(me) {
                record.event(Action::Fence);
                return self.give_way(me, record);
            }
            fresh = false;
            record.instructions += 1;
            match self.execute(me, instr, points, record) {
                After::Next => self.threads[this].pc += 1,
                After::Point(kind) => {
                    self.threads[this].pc += 1;
                    if !settles || kind.voluntary() {
                        return self.stop(me, kind);
                    }
                }
                After::Blocked(status) => {
                    self.threads[this].status = status;
                    match self.hand_over(me, record) {
                        Some(next) => (me, settles) = (next, self.interrupts_off_again(next)),
                        None => return self.give_way(me, record),
                    }
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
            self.current = Some(self.actor(me));
        }
        StepEnd::Point(self.point(me, kind))
    }

    /// The thread that the kernel goes over to where `me` has to wait or has ended, if the kernel does that.
    fn hand_over(&mut self, me: u8, record: &mut Record) -> Option<u8> {
        if self.program.kind != Kind::HandingOver {
            return None;
        }
        self.threads[usize::from(me)].off = self.exclusive.take() == Some(me);
        let next = self.ready().find(|&other| other > me).or_else(|| self.ready().next())?;
        self.queue_changes(record);
        record.event(Action::Switch { to: ThreadId(next.into()) });
        Some(next)
    }

    /// Goes on with interrupts off if `me` has waited with interrupts off, and says whether.
    fn interrupts_off_again(&mut self, me: u8) -> bool {
        let off = std::mem::take(&mut self.threads[usize::from(me)].off);
        if off {
            self.exclusive = Some(me);
        }
        off
    }

    fn exit(&mut self, me: u8, record: &mut Record) {
        self.threads[usize::from(me)].status = Status::Done;
        if std::mem::take(&mut self.masked[usize::from(me)]) {
            record.event(Action::InterruptsOn);
        }
        record.event(Action::Exit);
        record.access(AccessKind::Write, STATUSES, me);
        self.wake(record, |_, _, status| *status == Status::Join(me));
    }

    /// Takes the interrupt of a handler.
    fn take(&mut self, me: u8, handler: usize, record: &mut Record) {
        record.access(AccessKind::Update, PENDING, u8::try_from(handler).expect("few handlers"));
        record.event(Action::Interrupt { vector: self.program.handlers[handler].vector });
        self.pending[handler] = false;
        let home = usize::from(self.home(me));
        self.handling[home] = Some(me);
        self.threads[usize::from(me)] = Thread {
            pc: 0,
            register: 0,
            status: Status::Ready,
            transaction: None,
            stored: false,
            off: false,
        };
    }

    /// The handler has come to its end: its processor goes on with what was interrupted.
    fn handled(&mut self, me: u8, record: &mut Record) -> StepEnd {
        let home = self.home(me);
        record.event(Action::InterruptReturn);
        self.threads[usize::from(me)].status = Status::Absent;
        self.handling[usize::from(home)] = None;
        self.wake(record, |_, id, status| id == home && *status == Status::Halt);
        self.give_way(me, record)
    }

    /// The thread cannot go on: ends its step.
    fn give_way(&mut self, me: u8, record: &mut Record) -> StepEnd {
        self.queue_changes(record);
        self.exclusive = None;
        self.current = None;
        self.point_or_end(me, record)
    }

    /// How a step ends after which `me` cannot simply go on.
    fn point_or_end(&mut self, me: u8, record: &mut Record) -> StepEnd {
        if !self.enabled().is_empty() {
            let kind = match self.threads[usize::from(me)].status {
                Status::Write(..) => PointKind::Blocked,
                Status::Halt => PointKind::Halt,
                _ => PointKind::Voluntary,
            };
            return StepEnd::Point(self.point(me, kind));
        }
        self.over = true;
        record.event(Action::Console { line: self.state() });
        let finished = |thread: &Thread| matches!(thread.status, Status::Done | Status::Absent);
        if self.threads.iter().all(finished) {
            return StepEnd::Finished;
        }
        let waiting = (0u32..).zip(&self.threads).filter(|(_, thread)| !finished(thread));
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
        if self.over {
            return ChoiceSet::new();
        }
        let contexts = 0..u8::try_from(self.threads.len()).expect("few threads");
        let allowed = |&me: &u8| self.can_go_on(me) && self.exclusive.is_none_or(|owner| owner == me);
        let outcomes = |me: u8| {
            let actor = self.actor(me);
            (0..=self.outcome_max(me)).map(move |outcome| Choice { actor, outcome })
        };
        let buffers = (0u8..).zip(&self.buffers).filter(|(_, buffer)| !buffer.is_empty());
        let drains = buffers.filter_map(|(home, _)| self.actor(home).buffer()).map(Choice::from);
        contexts.filter(allowed).flat_map(outcomes).chain(drains).collect()
    }

    fn current(&self) -> Option<Actor> {
        self.current.filter(|&actor| self.enabled().contains_actor(actor))
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        assert!(self.enabled().contains(choice), "{choice} cannot be chosen");
        let mut record = Record::default();
        let (thread, end) = match choice.actor {
            buffer if buffer.is_buffer() => {
                let mut homes = 0..u8::try_from(self.buffers.len()).expect("few threads");
                let home = homes.find(|&home| self.actor(home).buffer() == Some(buffer)).expect("it is one");
                record.pc = VirtAddr(u64::from(home) << 8);
                self.drain(home, &mut record);
                let end = match self.enabled().is_empty() {
                    true => self.point_or_end(home, &mut record),
                    false => StepEnd::Point(self.point(home, PointKind::Access)),
                };
                (ThreadId(home.into()), end)
            }
            actor => {
                let mut contexts = 0..u8::try_from(self.threads.len()).expect("few threads");
                let me = contexts.find(|&me| self.actor(me) == actor).expect("it can be chosen");
                self.outcome = choice.outcome;
                if let Some(handler) = self.handler(me)
                    && self.handling[usize::from(self.home(me))] != Some(me)
                {
                    self.take(me, handler, &mut record);
                }
                (ThreadId(me.into()), self.run(me, points, &mut record))
            }
        };
        // Whoever has to wait does not go on later as if nothing had happened.
        self.current = self.current();
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
            remarks: Vec::new(),
        }
    }
}

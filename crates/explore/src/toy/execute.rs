//! What each instruction of a toy program does.

use super::{After, Instr, Kind, Record, SEMAPHORES, STATUSES, Status, Stored, Toy, VARIABLES};
use super::{BLOCK_SIZE, PENDING, block_at, lock_id};
use trace::{AccessKind, Action, PhysAddr, PointKind, PointRule, PointSet, Taking, ThreadId, VirtAddr};

impl Toy {
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

    /// What the processor or thread of `me` reads: the youngest store to the variable that is still in its
    /// buffer, or memory. Either way it counts as a read of the variable.
    fn load(&mut self, me: u8, variable: u8, record: &mut Record) -> u8 {
        record.access(AccessKind::Read, VARIABLES, variable);
        self.touch(me, variable, false);
        self.visible(me, variable)
    }

    fn store(&mut self, me: u8, variable: u8, value: u8, record: &mut Record) {
        if !self.program.kind.has_buffers() {
            record.access(AccessKind::Write, VARIABLES, variable);
            self.touch(me, variable, true);
            self.variables[variable as usize] = value;
            return self.written(record, variable);
        }
        let home = self.home(me);
        self.threads[usize::from(me)].stored = true;
        self.buffers[usize::from(home)].push(Stored { variable, value, step: self.steps });
        let at = VARIABLES + 8 * u64::from(variable);
        record.event(Action::Buffered { addr: VirtAddr(at), phys: PhysAddr(at), size: 4 });
        // What is interrupted sees at once what the handler stores.
        self.wake(record, |toy, id, status| toy.home(id) == home && status.waits_for(variable));
    }

    /// The store buffer of a processor hands its oldest store to memory, that of a thread all that were made
    /// in one step.
    pub(super) fn drain(&mut self, home: u8, record: &mut Record) {
        let oldest = self.buffers[usize::from(home)][0].step;
        let together = |stored: &Stored| stored.step == oldest;
        while self.buffers[usize::from(home)].first().is_some_and(together) {
            let Stored { variable, value, .. } = self.buffers[usize::from(home)].remove(0);
            record.access(AccessKind::Write, VARIABLES, variable);
            let at = VARIABLES + 8 * u64::from(variable);
            record.event(Action::Drained { addr: VirtAddr(at), phys: PhysAddr(at), size: 4 });
            self.variables[variable as usize] = value;
            self.written(record, variable);
            if self.program.kind == Kind::Buffered {
                return;
            }
        }
    }

    /// Whether the next instruction of `me` waits until all earlier stores of its processor are in memory.
    pub(super) fn waits_to_drain(&self, me: u8) -> bool {
        let next = self.body(me).get(usize::from(self.threads[usize::from(me)].pc));
        next.is_some_and(|&instr| Self::drains(instr) && !self.empties(instr))
            && !self.buffers[usize::from(self.home(me))].is_empty()
    }

    /// Whether an instruction that needs the buffer to be empty empties it by itself.
    fn empties(&self, instr: Instr) -> bool {
        let block = matches!(instr, Instr::Alloc(_) | Instr::Free(_) | Instr::Use(_));
        self.program.kind == Kind::BufferedThreads && block
    }

    /// Whether a thread that is about to execute `instr` has stored since it last needed its buffer to be
    /// empty: then a step begins here, whether or not the buffer has drained meanwhile.
    pub(super) fn is_at_fence(&mut self, me: u8, instr: Instr, fresh: bool) -> bool {
        let fence = self.program.kind == Kind::BufferedThreads && Self::drains(instr) && !self.empties(instr);
        let stored = &mut self.threads[usize::from(me)].stored;
        if fence && fresh {
            *stored = false;
        }
        fence && *stored
    }

    const fn drains(instr: Instr) -> bool {
        !matches!(
            instr,
            Instr::Read(_)
                | Instr::Write(..)
                | Instr::Store(_)
                | Instr::SkipUnless(..)
                | Instr::Point(_)
                | Instr::Yield
                | Instr::Spin(..)
                | Instr::SpinEither(..)
                | Instr::Assert(_)
                | Instr::Off
                | Instr::On
                | Instr::Peek
                | Instr::Coin(_)
                | Instr::Maybe(_)
                | Instr::Begin(..)
                | Instr::Poke
        )
    }

    /// Accesses to variables and blocks.
    fn access(&mut self, me: u8, instr: Instr, record: &mut Record) -> Option<After> {
        let this = usize::from(me);
        match instr {
            Instr::Read(variable) => {
                self.threads[this].register = self.load(me, variable, record);
            }
            Instr::Write(variable, value) => self.store(me, variable, value, record),
            Instr::Store(variable) => {
                self.store(me, variable, self.threads[this].register.wrapping_add(1), record);
            }
            Instr::Add(variable) => {
                record.access(AccessKind::Update, VARIABLES, variable);
                self.touch(me, variable, true);
                let cell = &mut self.variables[variable as usize];
                *cell = cell.wrapping_add(1);
                self.threads[this].register = *cell;
                self.written(record, variable);
            }
            Instr::Spin(variable, value) => {
                if self.load(me, variable, record) != value {
                    record.event(Action::Block { lock: None, owner: None });
                    return Some(After::Blocked(Status::Write(variable, variable)));
                }
            }
            Instr::SpinEither(a, b) => {
                let first = self.load(me, a, record);
                if first == 0 && self.load(me, b, record) == 0 {
                    record.event(Action::Block { lock: None, owner: None });
                    return Some(After::Blocked(Status::Write(a, b)));
                }
                self.threads[this].register = first;
            }
            Instr::Maybe(variable) => {
                record.access(AccessKind::Read, VARIABLES, variable);
                self.touch(me, variable, false);
                self.threads[this].register = self.outcome;
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
                    return Some(After::Panic(format!(
                        "block {block} used after free at {me}:{}",
                        self.threads[this].pc
                    )));
                }
            }
            _ => return None,
        }
        Some(After::Next)
    }

    /// What threads do to each other by locks, semaphores and names.
    fn synchronise(&mut self, me: u8, instr: Instr, points: &PointSet, record: &mut Record) -> Option<After> {
        let this = usize::from(me);
        let wants = |rule: PointRule| points.rules.contains(&rule);
        match instr {
            Instr::Lock(lock) => {
                if !self.acquire(me, lock, record, false) {
                    let owner = self.owners[lock as usize].map(|owner| ThreadId(owner.into()));
                    record.event(Action::Block { lock: Some(lock_id(lock)), owner });
                    return Some(After::Blocked(Status::Lock(lock)));
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
                    self.wake(record, |_, _, status| *status == Status::Lock(lock));
                }
                if wants(PointRule::Unlock) {
                    return Some(After::Point(PointKind::Unlock));
                }
            }
            Instr::Wait(semaphore) => {
                record.access(AccessKind::Update, SEMAPHORES, semaphore);
                let cell = &mut self.semaphores[semaphore as usize];
                if cell.count == 0 {
                    cell.queue.push(me);
                    record.event(Action::Block { lock: None, owner: None });
                    return Some(After::Blocked(Status::Semaphore(semaphore)));
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
                    return Some(After::Point(PointKind::Wake));
                }
            }
            Instr::Create(child) => {
                record.access(AccessKind::Write, STATUSES, child);
                self.queue_changes(record);
                let bodies = self.program.threads.len();
                if let Some(thread) = self.threads[..bodies].get_mut(usize::from(child))
                    && thread.status == Status::Absent
                {
                    thread.status = Status::Ready;
                    record.event(Action::Create { child: ThreadId(child.into()) });
                }
                if wants(PointRule::Create) {
                    return Some(After::Point(PointKind::Create));
                }
            }
            Instr::Join(thread) => {
                record.access(AccessKind::Read, STATUSES, thread);
                let bodies = &self.threads[..self.program.threads.len()];
                let other = bodies.get(usize::from(thread)).map(|other| other.status);
                if thread != me && other.is_some_and(|status| status != Status::Done) {
                    record.event(Action::Block { lock: None, owner: Some(ThreadId(thread.into())) });
                    return Some(After::Blocked(Status::Join(thread)));
                }
            }
            Instr::Yield => {
                record.event(Action::Yield);
                return Some(After::Point(PointKind::Voluntary));
            }
            _ => return None,
        }
        Some(After::Next)
    }

    /// Interrupts, and what the scheduler works on.
    fn processor(&mut self, me: u8, instr: Instr, record: &mut Record) -> Option<After> {
        let this = usize::from(me);
        match instr {
            Instr::Off if self.program.kind.has_threads() => self.exclusive = Some(me),
            Instr::On if self.program.kind.has_threads() => self.exclusive = None,
            // A handler runs with interrupts off.
            Instr::Off | Instr::On if self.home(me) == me => {
                self.masked[this] = instr == Instr::Off;
                let off = instr == Instr::Off;
                record.event(if off { Action::InterruptsOff } else { Action::InterruptsOn });
            }
            Instr::Off | Instr::On => {}
            Instr::Send(handler) => {
                record.access(AccessKind::Write, PENDING, handler);
                if let Some(pending) = self.pending.get_mut(usize::from(handler)) {
                    *pending = true;
                }
            }
            Instr::Halt => {
                self.threads[this].pc += 1;
                record.event(Action::Halt);
                return Some(After::Blocked(Status::Halt));
            }
            Instr::Poke => {
                let home = self.home(me);
                if home != me {
                    record.event(Action::Switch { to: ThreadId(home.into()) });
                    record.event(Action::Switch { to: ThreadId(me.into()) });
                }
                self.threads[usize::from(home)].register = 1;
            }
            Instr::Peek => {
                record.event(Action::Exposed);
                self.threads[this].register = self.steps;
            }
            _ => return None,
        }
        Some(After::Next)
    }

    /// Executes one instruction of `me`.
    pub(super) fn execute(&mut self, me: u8, instr: Instr, points: &PointSet, record: &mut Record) -> After {
        let this = usize::from(me);
        let waits = self.program.kind == Kind::Buffered && Self::drains(instr);
        if waits || self.empties(instr) {
            record.event(Action::Fence);
            self.threads[this].stored = false;
            while !self.buffers[usize::from(self.home(me))].is_empty() {
                self.drain(self.home(me), record);
            }
        }
        let done = self
            .access(me, instr, record)
            .or_else(|| self.synchronise(me, instr, points, record))
            .or_else(|| self.processor(me, instr, record));
        if let Some(after) = done {
            return after;
        }
        match instr {
            Instr::SkipUnless(value, count) => {
                if self.threads[this].register != value {
                    self.threads[this].pc += u16::from(count);
                }
            }
            Instr::Assert(value) => {
                if self.threads[this].register != value {
                    return After::Panic(format!("assertion at {me}:{}", self.threads[this].pc));
                }
            }
            Instr::Coin(_) => self.threads[this].register = self.outcome,
            Instr::Begin(body, fallback) => self.begin(me, body, fallback),
            Instr::GoOver => return After::GoOver,
            Instr::End => return After::End,
            Instr::Point(_) | Instr::Fence => {}
            _ => unreachable!("{instr:?} is executed above"),
        }
        After::Next
    }
}

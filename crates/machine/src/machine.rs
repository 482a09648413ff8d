//! The whole machine as one value.
//!
//! `clone` gives an equal machine for the price of some reference counts; `clone_from` makes a machine equal
//! to another one and keeps whatever decoded code and translations still hold, so going back to a checkpoint
//! is `live.clone_from(&checkpoint)`.

use crate::board::{Board, BoardConfig, CPUS_MAX, Signal};
use crate::boot::{self, Boot, BootError, Format};
use crate::devices::disk::Disk;
use crate::events::{Events, Filter, LogEntry};
use crate::hash::StableHasher;
use crate::inputs::{Input, Moment, Tape};
use crate::memory::{Memory, Touched};
use crate::stop::{Stop, StopSet};
use crate::transactions::Transactions;
use crate::x86::engine::Engine;
use crate::x86::exec::Exec;
use crate::x86::mmu::{Intent, walk};
use crate::x86::run::Exit;
use crate::x86::state::{Activity, Cpu, Seg, Segment, Table, cr0, cr4, efer};
use trace::{CpuId, PhysAddr, VirtAddr};

/// A PC.
pub struct Machine {
    /// Processors.
    pub cpus: Vec<Cpu>,
    /// Physical memory. The machine notices when the caller writes to it.
    pub memory: Memory,
    /// Devices.
    pub board: Board,
    instructions: u64,
    /// A processor that stopped before an instruction at a code address, and may now execute it.
    resume: Option<(CpuId, u64)>,
    /// For each processor that stopped before an access and may now make it, how many instructions it had
    /// executed.
    held: [Option<u64>; CPUS_MAX as usize],
    /// Interrupts and debug traps that each processor took between instructions.
    taken: [u64; CPUS_MAX as usize],
    pub(crate) tape: Option<Box<Tape>>,
    pub(crate) transactions: Transactions,
    engine: Engine,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machine({} processors, at {})", self.cpus.len(), self.instructions)
    }
}

impl Clone for Machine {
    fn clone(&self) -> Self {
        Self {
            cpus: self.cpus.clone(),
            memory: self.memory.clone(),
            board: self.board.clone(),
            instructions: self.instructions,
            resume: self.resume,
            held: self.held,
            taken: self.taken,
            tape: self.tape.clone(),
            transactions: self.transactions.clone(),
            engine: Engine::default(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.cpus.clone_from(&source.cpus);
        self.board.clone_from(&source.board);
        self.instructions = source.instructions;
        self.resume = source.resume;
        self.held = source.held;
        self.taken = source.taken;
        self.tape.clone_from(&source.tape);
        self.transactions.clone_from(&source.transactions);
        self.engine.restore(&mut self.memory, &source.memory);
    }
}

impl Machine {
    /// A machine after power-up.
    #[must_use]
    pub fn new(config: BoardConfig) -> Self {
        let cpus = (0..config.cpus).map(|i| Cpu::reset(i == 0)).collect();
        let memory = Memory::new(config.memory_bytes);
        Self {
            held: Default::default(),
            taken: Default::default(),
            tape: None,
            transactions: Transactions::new(config.tsx),
            cpus,
            memory,
            board: Board::new(config),
            instructions: 0,
            resume: None,
            engine: Engine::default(),
        }
    }

    /// One processor in 32-bit protected mode with flat segments, paging and interrupts off, for code that
    /// needs nothing more. Selectors 8 and 16 are its code and data segments.
    #[must_use]
    pub fn flat32(memory_bytes: u64) -> Self {
        let mut machine = Self::new(BoardConfig { cpus: 1, memory_bytes, ..BoardConfig::default() });
        let cpu = &mut machine.cpus[0];
        cpu.cr0 = cr0::PE | cr0::ET | cr0::NE;
        cpu.segments = [Segment::flat(16, false, 0); 6];
        cpu.segments[Seg::Cs as usize] = Segment::flat(8, true, 0);
        cpu.gdtr = Table::default();
        cpu.idtr = Table::default();
        cpu.rip = 0;
        machine
    }

    /// One processor in 64-bit mode with flat segments and interrupts off, for code that needs nothing more.
    /// The lowest and the highest 512 GiB of addresses lead to physical memory from 0 on, for every ring, by
    /// tables in the last two pages. Selectors 8 and 16 are its code and data segments.
    #[must_use]
    pub fn flat64(memory_bytes: u64) -> Self {
        let mut machine = Self::flat32(memory_bytes);
        const PRESENT_WRITABLE_USER: u64 = 7;
        const LARGE: u64 = 0x80;
        let end = machine.memory.size();
        let (top, gigabytes) = (end - 0x2000, end - 0x1000);
        for i in [0, 511] {
            let entry = gigabytes | PRESENT_WRITABLE_USER;
            machine.memory.load(PhysAddr(top + 8 * i), &entry.to_le_bytes());
        }
        for i in 0..512 {
            let entry = i << 30 | LARGE | PRESENT_WRITABLE_USER;
            machine.memory.load(PhysAddr(gigabytes + 8 * i), &entry.to_le_bytes());
        }
        let cpu = &mut machine.cpus[0];
        cpu.cr3 = top;
        cpu.cr4 = cr4::PAE | cr4::OSFXSR | cr4::OSXMMEXCPT;
        cpu.efer = efer::LME | efer::LMA | efer::NXE | efer::SCE;
        cpu.cr0 |= cr0::PG | cr0::WP;
        cpu.segments[Seg::Cs as usize] = Segment::long(8, 0);
        machine
    }

    /// A machine with a kernel in it, about to execute its first instruction. A disk image becomes the first
    /// disk, and the others move on.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        let Boot { kernel, options, mut board } = boot;
        let format = Format::detect(kernel)?;
        if format == Format::Disk {
            board.disks.rotate_right(1);
            if board.disks[0].is_some() {
                return Err(BootError::TooManyDisks);
            }
            board.disks[0] = Some(Disk::new(kernel.to_vec()));
        }
        let mut machine = Self::new(board);
        let Self { cpus, memory, board, .. } = &mut machine;
        boot::load(format, kernel, &options, memory, &mut cpus[0], board)?;
        Ok(machine)
    }

    /// A machine from its parts.
    pub(crate) fn resumed(
        cpus: Vec<Cpu>,
        memory: Memory,
        board: Board,
        instructions: u64,
        resume: Option<(CpuId, u64)>,
        held: [Option<u64>; CPUS_MAX as usize],
        transactions: Transactions,
    ) -> Self {
        let taken = Default::default();
        Self {
            cpus,
            memory,
            board,
            instructions,
            resume,
            held,
            taken,
            tape: None,
            transactions,
            engine: Engine::default(),
        }
    }

    /// A processor that stopped before an instruction at a code address.
    pub(crate) fn resume(&self) -> Option<(CpuId, u64)> {
        self.resume
    }

    /// Processors that stopped before an access, each with the instructions it had executed.
    pub(crate) fn held(&self) -> [Option<u64>; CPUS_MAX as usize] {
        self.held
    }

    /// Machine time: instructions executed by all processors, and the time slept through.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The processor.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> &Cpu {
        &self.cpus[usize::from(id.0)]
    }

    /// The processor, to change its registers.
    pub fn cpu_mut(&mut self, id: CpuId) -> &mut Cpu {
        &mut self.cpus[usize::from(id.0)]
    }

    /// A hash of the whole state, the same on every host.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        let mut hasher = StableHasher::new();
        for cpu in &self.cpus {
            cpu.hash_into(&mut hasher);
        }
        self.board.hash_into(&mut hasher);
        self.memory.hash_into(&mut hasher);
        self.transactions.hash_into(&mut hasher);
        hasher.word(self.instructions);
        hasher.finish()
    }

    /// Brings derived state up to date with what happened outside of runs.
    fn prepare(&mut self, until: &StopSet, events: &Events) {
        self.engine.prepare(&self.memory, until, events);
        if self.memory.take_cloned() {
            self.engine.mmu.revoke_writes();
        }
        match self.memory.take_touched() {
            None => {}
            Some(Touched::Frames(frames)) => frames.into_iter().for_each(|f| self.engine.touched(f.into())),
            Some(Touched::Everything) => self.engine.forget(),
        }
    }

    fn exec<'a>(&'a mut self, id: CpuId, until: &'a StopSet, events: &'a mut Events) -> Exec<'a> {
        let cpu = &mut self.cpus[usize::from(id.0)];
        self.engine.mmu.select(cpu);
        Exec {
            next: cpu.rip,
            cpu,
            memory: &mut self.memory,
            board: &mut self.board,
            engine: &mut self.engine,
            events,
            stops: until,
            id,
            now: self.instructions,
            atomic: false,
            modifies: false,
            leave: false,
            stop: None,
            implicit: false,
            repeating: false,
            pass: false,
            taken: self.taken[usize::from(id.0)],
            moment: None,
            after_due: true,
            transactions: &mut self.transactions,
            refuse: None,
        }
    }

    /// Runs one processor until something in `until` happens, or something that always ends a run.
    pub fn run(&mut self, id: CpuId, until: &StopSet, events: &mut Events) -> Stop {
        self.run_up_to(id, None, until, events)
    }

    /// Runs one processor until something in `until` happens, but not beyond a moment of its execution;
    /// [`Stop::Budget`] if that is reached.
    pub fn run_to(&mut self, id: CpuId, to: Moment, until: &StopSet, events: &mut Events) -> Stop {
        self.run_up_to(id, Some(to), until, events)
    }

    fn run_up_to(&mut self, id: CpuId, to: Option<Moment>, until: &StopSet, events: &mut Events) -> Stop {
        self.prepare(until, events);
        self.begin(id, events);
        let here = self.cpu(id).executed;
        let end = until.instructions.map_or(u64::MAX, |n| here.saturating_add(n));
        let end = to.map_or(end, |to| end.min(to.executed));
        let mut pass = self.held[usize::from(id.0)].take() == Some(here);
        let mut resumed = self.resume.take() == Some((id, self.cpu(id).executed));
        let alone = !self
            .cpus
            .iter()
            .enumerate()
            .any(|(i, c)| i != usize::from(id.0) && c.activity == Activity::Running);
        loop {
            let mut exec = self.exec(id, until, events);
            exec.pass = pass;
            exec.moment = to.filter(|to| !to.after_due).map(|to| (to.executed, to.taken));
            let exit = exec.go(end, resumed, alone);
            let (now, repeating, taken, after_due) = (exec.now, exec.repeating, exec.taken, exec.after_due);
            pass = exec.pass;
            self.instructions = now;
            self.taken[usize::from(id.0)] = taken;
            let executed = self.cpu(id).executed;
            resumed = resumed && executed == here || repeating;
            match exit {
                Exit::Signals => {
                    if let Some(stop) = self.signals() {
                        self.ran(id, after_due);
                        return stop;
                    }
                    self.prepare(until, events);
                }
                Exit::Stop(stop) => {
                    if matches!(stop, Stop::Code(_)) || repeating || resumed {
                        self.resume = Some((id, executed));
                    }
                    if matches!(stop, Stop::Before { .. } | Stop::TransactionBegin | Stop::Fence) || pass {
                        self.held[usize::from(id.0)] = Some(executed);
                    }
                    self.ran(id, after_due);
                    return stop;
                }
            }
        }
    }

    /// Notes that a run of this processor ended here.
    fn ran(&mut self, cpu: CpuId, after_due: bool) {
        let to = Moment { executed: self.cpu(cpu).executed, taken: self.taken(cpu), after_due };
        if let Some(tape) = &mut self.tape {
            tape.push(Input::Run { cpu, to });
        }
    }

    /// Interrupts and debug traps that this processor took between instructions, since the machine was made
    /// or read.
    pub(crate) fn taken(&self, cpu: CpuId) -> u64 {
        self.taken[usize::from(cpu.0)]
    }

    /// Lets time pass until `time`, if that is not over.
    pub(crate) fn pass_until(&mut self, time: u64) {
        self.instructions = self.instructions.max(time);
    }

    /// Makes this processor the one whose accesses are logged; what another one logged is settled under its
    /// own tables.
    fn begin(&self, id: CpuId, events: &mut Events) {
        let before = events.cpu().filter(|&c| c != id);
        let before = before.map(|c| (&self.cpus[usize::from(c.0)], &self.memory, &self.engine.code));
        events.begin(id, self.instructions, before);
    }

    /// Acts on what the board asks for.
    fn signals(&mut self) -> Option<Stop> {
        let mut stop = None;
        for signal in self.board.take_signals() {
            match signal {
                Signal::PowerOff => stop = Some(Stop::PowerOff),
                Signal::Exit { status } => stop = Some(Stop::Exit { status }),
                Signal::Reset => stop = Some(Stop::Reset),
                Signal::Init { cpu } => {
                    let bootstrap = cpu.0 == 0;
                    let old = self.cpu(cpu).clone();
                    let mut fresh = Cpu::reset(bootstrap);
                    fresh.activity = Activity::WaitForSipi;
                    fresh.executed = old.executed;
                    fresh.fpu = old.fpu;
                    fresh.msrs = old.msrs;
                    *self.cpu_mut(cpu) = fresh;
                }
                Signal::Startup { cpu, page } => {
                    let cpu = self.cpu_mut(cpu);
                    if cpu.activity == Activity::WaitForSipi {
                        let mut code = Segment::real(u16::from(page) << 8);
                        code.attributes = 0x9b;
                        cpu.segments[Seg::Cs as usize] = code;
                        cpu.rip = 0;
                        cpu.activity = Activity::Running;
                    }
                }
                Signal::Nmi { cpu } => self.cpu_mut(cpu).nmi_pending = true,
                Signal::BiosCall { cpu } => self.bios_call(cpu),
            }
        }
        stop
    }

    /// Carries out the BIOS service that a stub of the ROM asks for. A program that uses the port without
    /// being one gets nothing.
    fn bios_call(&mut self, id: CpuId) {
        let cpu = &mut self.cpus[usize::from(id.0)];
        crate::boot::bios::call(self.instructions, id, cpu, &mut self.memory, &mut self.board);
    }

    /// Runs all processors in turn, `quota` instructions each, until one of them ends its run with anything
    /// but its share or a halt. When all are halted, time passes until a device wakes one.
    pub fn run_all(&mut self, quota: u64, until: &StopSet, events: &mut Events) -> (CpuId, Stop) {
        let mut left = until.instructions.unwrap_or(u64::MAX);
        loop {
            let mut progress = false;
            for i in 0..self.cpus.len() {
                let id = CpuId(i as u8);
                if matches!(self.cpus[i].activity, Activity::WaitForSipi | Activity::Shutdown) {
                    continue;
                }
                let share = quota.min(left);
                let before = self.cpus[i].executed;
                let stop = self.run(id, &StopSet { instructions: Some(share), ..until.clone() }, events);
                let ran = self.cpus[i].executed - before;
                progress |= ran != 0;
                left -= ran;
                match stop {
                    Stop::Halt
                        if self.cpus[i].activity == Activity::Halted && !until.on.has(crate::Kinds::HALT) => {
                    }
                    Stop::Budget if left > 0 => {}
                    stop => return (id, stop),
                }
            }
            if !progress {
                return (CpuId(0), Stop::Halt);
            }
        }
    }

    /// Executes every instruction by itself from now on, much slower and with the same outcome: for tests of
    /// exactly that.
    pub fn compile_nothing(&mut self) {
        self.engine.second_tier_only = true;
    }

    /// The return addresses of the last calls, newest first, which show how the processor came to where it
    /// is. Only what ran since this machine was made or cloned.
    #[must_use]
    pub fn recent_calls(&self) -> Vec<VirtAddr> {
        self.engine.code.recent_calls().map(VirtAddr).collect()
    }

    /// Aborts the XBEGIN that is next at once; see [`Machine::refuse_transaction`].
    pub(crate) fn refuse(&mut self, id: CpuId, status: u32, events: &mut Events) {
        let until = StopSet::default();
        self.prepare(&until, events);
        self.held[usize::from(id.0)] = None;
        self.begin(id, events);
        let mut exec = self.exec(id, &until, events);
        exec.refuse = Some(status);
        exec.step();
        let now = exec.now;
        self.instructions = now;
    }

    /// See [`Machine::inject`].
    pub(crate) fn deliver(&mut self, id: CpuId, vector: u8, events: &mut Events) -> Option<Stop> {
        let until = StopSet::default();
        self.prepare(&until, events);
        self.resume = None;
        self.held[usize::from(id.0)] = None;
        self.begin(id, events);
        let mut exec = self.exec(id, &until, events);
        let done = exec.interrupt(vector);
        exec.delivered(done);
        exec.stop.take()
    }

    /// Where a linear address leads for this processor, without effects; `None` if it is not mapped.
    #[must_use]
    pub fn translate(&self, id: CpuId, address: VirtAddr) -> Option<PhysAddr> {
        walk(self.cpu(id), &self.memory, address.0, Intent::Read, false).ok().map(|w| PhysAddr(w.physical))
    }

    /// Reads through the processor's page tables, without effects. False if part of it is not mapped.
    pub fn read_virt(&self, id: CpuId, address: VirtAddr, bytes: &mut [u8]) -> bool {
        if self.engine.peek(self.cpu(id), &self.memory, address.0, bytes) {
            return true;
        }
        let mut at = address.0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut((0x1000 - (at as usize & 0xfff)).min(rest.len()));
            let Some(physical) = self.translate(id, VirtAddr(at)) else { return false };
            self.memory.read(physical, now);
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
        true
    }

    /// Writes through the processor's page tables, whatever they permit, without setting their bits. False,
    /// with nothing written, if part of it is not mapped.
    pub fn write_virt(&mut self, id: CpuId, address: VirtAddr, bytes: &[u8]) -> bool {
        let mut pieces = Vec::new();
        let mut at = address.0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at((0x1000 - (at as usize & 0xfff)).min(rest.len()));
            let Some(physical) = self.translate(id, VirtAddr(at)) else { return false };
            pieces.push((physical, now));
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
        for (physical, piece) in pieces {
            self.write_phys(physical, piece);
        }
        true
    }

    /// Reads a little-endian word through the processor's page tables.
    #[must_use]
    pub fn read_virt_u32(&self, id: CpuId, address: VirtAddr) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read_virt(id, address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// Hands everything logged to `sink`, oldest first, with physical addresses, and empties the log.
    pub fn drain(&self, events: &mut Events, sink: impl FnMut(LogEntry)) {
        self.drain_unknown(events, &mut (), sink);
    }

    /// As [`Machine::drain`], without the accesses that `filter` knows.
    pub fn drain_unknown(&self, events: &mut Events, filter: &mut impl Filter, sink: impl FnMut(LogEntry)) {
        let cpu = events.cpu().unwrap_or_default();
        events.drain(self.cpu(cpu), &self.memory, &self.engine, filter, sink);
    }
}

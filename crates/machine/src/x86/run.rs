//! The loop of one processor: what comes before each instruction, and single steps.

use super::engine::run::Ran;
use super::exec::Exec;
use super::fence::is_fence;
use super::flags;
use super::interrupt::Delivered;
use super::mmu::Intent;
use super::state::{Activity, Seg, canonical, reg};
use super::transaction::aborts;
use super::trap::{Exception, Outcome, Trap};
use crate::board::TimerMode;
use crate::events::{Passed, STACK_TOP_BYTES};
use crate::stop::{Kinds, Noting, Stop, Unsupported};
use crate::transactions::status;
use iced_x86::{Decoder, DecoderError, DecoderOptions, Formatter, Instruction, Mnemonic, NasmFormatter};
use trace::VirtAddr;

/// Bytes of the longest instruction.
const INSTRUCTION_BYTES_MAX: usize = 15;
/// How many device events a halted processor sleeps through before it is taken for dead.
const IDLE_EVENTS_MAX: u32 = 100_000;

/// How many instructions are executed between two looks at devices and signals.
const COMPILED_MAX: u64 = 1 << 24;
/// The most instructions executed between two looks while accesses are logged, so that the log grows by no
/// more at a time.
const LOGGED_MAX: u64 = 1 << 16;

/// Why the loop ended.
#[derive(Debug)]
pub(crate) enum Exit {
    Stop(Stop),
    /// The board has something for other processors or the caller.
    Signals,
}

/// What came of letting a halted processor sleep.
enum Slept {
    /// Time has gone on.
    On,
    /// Nothing here can wake it.
    Halted,
}

/// What was taken between two instructions.
enum Taken {
    TrapOrNmi,
    Interrupt,
}

impl Exec<'_> {
    /// Runs until something ends it or until `end` instructions have been executed by this processor.
    /// `resumed`: a stop at the first instruction's address has been reported already.
    /// `alone`: no other processor runs, so a halted one may sleep until the next device event.
    pub(crate) fn go(&mut self, end: u64, mut resumed: bool, alone: bool) -> Exit {
        let mut idle_events = 0;
        // Instructions up to here are executed one by one: a block would go too far.
        let mut steps_until = 0;
        // The next instruction is where some run stops, but not this one.
        let mut passing = false;
        loop {
            if let Some(stop) = self.stop.take() {
                self.after_due = false;
                return Exit::Stop(stop);
            }
            if self.moment == Some((self.cpu.executed, self.taken)) {
                self.after_due = false;
                return Exit::Stop(Stop::Budget);
            }
            if self.abort_doomed() {
                self.taken += 1;
                continue;
            }
            if self.board.has_signals() {
                return Exit::Signals;
            }
            if self.board.next_event().is_some_and(|t| t <= self.now) {
                self.board.advance(self.now);
                continue;
            }
            match self.cpu.activity {
                Activity::Running => {}
                Activity::Halted if self.wakes() => {}
                Activity::Halted => match self.sleep(alone, &mut idle_events) {
                    Slept::On => continue,
                    Slept::Halted => return Exit::Stop(Stop::Halt),
                },
                Activity::WaitForSipi => return Exit::Stop(Stop::NotStarted),
                Activity::Shutdown => return Exit::Stop(Stop::TripleFault),
            }
            if self.cpu.trap_pending || self.cpu.nmi_pending || self.board.interrupt_pending(self.id) {
                match self.take_pending() {
                    Some(Taken::Interrupt) => {
                        idle_events = 0;
                        continue;
                    }
                    Some(Taken::TrapOrNmi) => continue,
                    None => {}
                }
            }
            if self.cpu.executed >= end {
                return Exit::Stop(Stop::Budget);
            }
            if self.events.full() {
                return Exit::Stop(Stop::LogFull);
            }
            let pc = self.pc();
            let resuming = std::mem::take(&mut resumed) | std::mem::take(&mut self.repeating);
            // All addresses of this run are among those where blocks stop, which are found faster.
            let is_stop = self.engine.code.stops.contains(&pc);
            let is_noted = self.stops.noted.contains_key(&pc);
            let noted = is_noted && !resuming && self.notes(pc, &self.cpu.regs.clone());
            if !resuming && !noted && (is_noted || is_stop && self.stops.code.contains(&pc)) {
                return Exit::Stop(Stop::Code(VirtAddr(pc)));
            }
            self.engine.mmu.select(self.cpu);
            let past_stop = std::mem::take(&mut passing) || is_stop || is_noted;
            if self.pass || self.cpu.executed < steps_until || self.steps_only() {
                self.step();
                self.pass = false;
                continue;
            }
            let exact = self.limit(end);
            let before = self.cpu.executed;
            let limit = exact.min(before + self.loggable());
            let ran = self.compiled(limit, past_stop);
            let nothing = self.cpu.executed == before;
            // What was reported need not be again.
            resumed = (resuming || noted) && nothing;
            match ran {
                Ran::On => {}
                // The log has room to spare: its limit need not be met to the instruction.
                Ran::Tail if limit < exact => {}
                Ran::Tail => steps_until = limit,
                // Looked at again first: it may be an address where this run stops.
                Ran::Break => passing = true,
                Ran::Single => {
                    if nothing || !self.engine.code.is_cut_at(self.pc()) {
                        resumed = false;
                        self.step();
                    }
                }
                Ran::Full if self.events.is_empty() => {
                    for frame in self.engine.code.frames() {
                        self.engine.mmu.unflag_code(frame);
                    }
                    self.engine.code.reset();
                }
                Ran::Full => {
                    if noted {
                        // The next run comes by here again.
                        self.events.passed.pop();
                    }
                    return Exit::Stop(Stop::LogFull);
                }
            }
        }
    }

    /// Whether compiled code may go on to `pc`, with these registers: if that is to be noted, it is.
    pub(super) fn passes(&mut self, pc: u64, regs: &[u64; 16]) -> bool {
        !self.stops.noted.contains_key(&pc) || !self.events.full() && self.notes(pc, regs)
    }

    /// Notes that `pc` is next, with these registers, if it is an address where that will do.
    fn notes(&mut self, pc: u64, regs: &[u64; 16]) -> bool {
        let Some(noting) = self.stops.noted.get(&pc) else { return false };
        if self.board.has_output() {
            return false;
        }
        let mask = if self.cpu.long_code() { u64::MAX } else { 0xffff_ffff };
        let sp = regs[reg::SP] & mask;
        let (mut stack, mut stack_bytes) = ([0; STACK_TOP_BYTES], STACK_TOP_BYTES);
        if !self.engine.peek(self.cpu, self.memory, sp, &mut stack) {
            stack_bytes = 0;
            for (byte, at) in stack.iter_mut().zip(sp..) {
                let Some(physical) = self.physical(at) else { break };
                *byte = self.memory.read_u8(physical);
                stack_bytes += 1;
            }
        }
        if *noting == Noting::IfReturnIsKnown {
            let word = if self.cpu.long_code() { 8 } else { 4 };
            let mut address = [0; 8];
            address[..word].copy_from_slice(&stack[..word]);
            let returns_to = u64::from_le_bytes(address);
            let known =
                || self.stops.noted.contains_key(&returns_to) || self.stops.code.contains(&returns_to);
            if stack_bytes < word || !known() {
                return false;
            }
        }
        self.events.passed.push(Passed {
            pc: VirtAddr(pc),
            regs: regs.map(|register| register & mask),
            ring: self.cpu.cpl(),
            cr3: self.cpu.cr3,
            stack,
            stack_bytes: stack_bytes as u8,
            flag_changes_before: self.events.flag_changes.len(),
        });
        true
    }

    /// Lets a halted processor sleep until the next device event, if it may.
    fn sleep(&mut self, alone: bool, idle_events: &mut u32) -> Slept {
        match self.board.next_event() {
            Some(t) if self.may_sleep(alone) && *idle_events < IDLE_EVENTS_MAX => {
                *idle_events += 1;
                self.now = t;
                let before = self.board.pending_elsewhere(self.id);
                self.board.advance(t);
                // Another halted processor is woken first: let the caller run it.
                match self.board.pending_elsewhere(self.id) & !before {
                    0 => Slept::On,
                    _ => Slept::Halted,
                }
            }
            _ => Slept::Halted,
        }
    }

    /// Takes a debug trap, a non-maskable interrupt or an interrupt that waits, if it may be taken here.
    fn take_pending(&mut self) -> Option<Taken> {
        if self.cpu.trap_pending {
            self.pass = false;
            self.taken += 1;
            self.cpu.trap_pending = false;
            if !self.abort(status::DEBUG) {
                let exception = Exception { vector: 1, error: None, address: None };
                let done = self.raise(exception);
                self.delivered(done);
            }
            return Some(Taken::TrapOrNmi);
        }
        if self.cpu.nmi_pending && !self.cpu.nmi_blocked && self.cpu.shadow_at != self.cpu.executed {
            self.pass = false;
            self.taken += 1;
            self.abort(0);
            self.cpu.nmi_pending = false;
            self.cpu.nmi_blocked = true;
            let done = self.interrupt(2);
            self.delivered(done);
            return Some(Taken::TrapOrNmi);
        }
        if self.board.interrupt_pending(self.id) && self.cpu.interruptible() {
            self.pass = false;
            self.taken += 1;
            self.abort(0);
            let vector = self.board.acknowledge(self.now, self.id);
            let done = self.interrupt(vector);
            self.delivered(done);
            return Some(Taken::Interrupt);
        }
        None
    }

    /// Must every instruction be looked at? For single-stepping and debug registers, and for the one
    /// instruction that holds an interrupt back, which is due right after it.
    fn steps_only(&self) -> bool {
        let due = self.board.interrupt_pending(self.id) || self.cpu.nmi_pending;
        self.engine.second_tier_only
            || self.transactional()
            || due && self.cpu.shadow_at == self.cpu.executed
            || self.cpu.flags.other & (flags::TF | flags::RF) != 0
            || self.cpu.dr[7] & 0xff != 0
    }

    /// How far compiled code may go before something else must be looked at.
    fn limit(&self, end: u64) -> u64 {
        let executed = self.cpu.executed;
        let mut limit = end.min(executed + COMPILED_MAX);
        if let Some(event) = self.board.next_event() {
            limit = limit.min(executed.saturating_add(event - self.now));
        }
        limit
    }

    /// For how many instructions the log has room. There is room for a block while it is not full.
    fn loggable(&self) -> u64 {
        if !self.events.accesses {
            return COMPILED_MAX;
        }
        let room = self.events.limit_words.saturating_sub(self.events.words.len());
        (room / self.cpu.log_words()).clamp(1, LOGGED_MAX as usize) as u64
    }

    /// Can the halted processor go on at once?
    fn wakes(&self) -> bool {
        self.cpu.nmi_pending && !self.cpu.nmi_blocked
            || self.board.interrupt_pending(self.id) && self.cpu.interruptible()
    }

    fn may_sleep(&self, alone: bool) -> bool {
        alone && self.board.timer_mode() == TimerMode::FreeRunning && self.cpu.interruptible()
    }

    /// Turns what became of a delivery into a stop, if it must.
    pub(crate) fn delivered(&mut self, outcome: Delivered) {
        match outcome {
            Delivered::Done => {}
            Delivered::Shutdown => {
                self.cpu.activity = Activity::Shutdown;
                self.stop_after(Stop::TripleFault);
            }
            Delivered::Unsupported(what) => {
                let stop = self.unsupported(what);
                self.stop_after(stop);
            }
        }
    }

    /// Executes one instruction, or takes the exception it raises.
    pub(crate) fn step(&mut self) {
        self.leave = false;
        let mut instr = Instruction::default();
        let outcome = match self.fetch(&mut instr) {
            Ok(()) => self.execute(&instr),
            Err(trap) => Err(trap),
        };
        self.finish(outcome);
    }

    /// Executes a decoded instruction at RIP, without counting it.
    pub(crate) fn execute(&mut self, instr: &Instruction) -> Outcome<()> {
        let stepped = self.cpu.flags.other & flags::TF != 0;
        let resume_flag = self.cpu.flags.other & flags::RF;
        let mark = self.events.words.len();
        // Not iced's idea of it, which wraps at 64 KiB: running over the end of the segment is a fault.
        self.next = self.cpu.rip.wrapping_add(instr.len() as u64);
        self.atomic = instr.has_lock_prefix();
        self.modifies = false;
        let called = if self.transactional() { self.call_outside(instr) } else { None };
        let outcome = if self.transactions.open(self.id).is_some() && aborts(instr) {
            Err(Trap::Abort(self.status_of(instr)))
        } else if self.stops.on.has(Kinds::USER_FENCE.and(Kinds::FENCE)) && self.stops_at_fence(instr) {
            self.leave = true;
            self.stop = Some(Stop::Fence);
            Err(Trap::Held)
        } else {
            super::execute(self, instr)
        };
        match outcome {
            Ok(()) => {
                self.cpu.rip = self.next;
                if self.transactional() {
                    self.back_inside(instr);
                }
                if self.single_step_due(instr, stepped) {
                    self.cpu.dr[6] |= 1 << 14;
                    self.cpu.trap_pending = true;
                    self.leave = true;
                }
                if resume_flag != 0
                    && !matches!(instr.mnemonic(), Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq)
                {
                    self.cpu.flags.put(flags::RF, false);
                }
            }
            Err(_) => {
                self.events.words.truncate(mark);
                if let Some(to) = called {
                    self.transactions.back(self.id, to);
                }
            }
        }
        outcome
    }

    /// Is this a fence that was not logged yet?
    fn stops_at_fence(&self, instr: &Instruction) -> bool {
        let here = self.stops.on.has(Kinds::FENCE) || self.cpu.cpl() == 3;
        !self.pass && here && is_fence(instr)
    }

    /// Counts an instruction and takes the exception it may have raised. One that is not modelled, or held
    /// back, does not count: it can be tried again.
    pub(crate) fn finish(&mut self, outcome: Outcome<()>) {
        match outcome {
            Ok(()) => {}
            Err(Trap::Abort(status)) => {
                self.abort(status);
            }
            Err(Trap::Exception(exception)) => {
                let debug = if exception.vector == 1 { status::DEBUG } else { 0 };
                if !self.abort(debug) {
                    let done = self.raise(exception);
                    self.delivered(done);
                }
            }
            Err(Trap::Unsupported(what)) => {
                let stop = self.unsupported(what);
                self.stop_after(stop);
                return;
            }
            Err(Trap::Held) => return,
        }
        self.now += 1;
        self.cpu.executed += 1;
    }

    /// Reads and decodes the instruction at RIP.
    pub(crate) fn fetch(&mut self, instr: &mut Instruction) -> Outcome<()> {
        self.check_instruction_breakpoints()?;
        let cs = *self.cpu.seg(Seg::Cs);
        let rip = self.cpu.rip;
        let long = self.cpu.long_code();
        if if long { !canonical(rip) } else { rip > cs.limit.into() } {
            return Err(Trap::GP0);
        }
        let linear = self.pc();
        let user = self.cpu.cpl() == 3;
        let mut bytes = [0; INSTRUCTION_BYTES_MAX];
        let in_page = 0x1000 - (linear & 0xfff) as usize;
        let in_segment = if long { 15 } else { (u64::from(cs.limit) - rip + 1).min(15) as usize };
        let first = in_page.min(INSTRUCTION_BYTES_MAX).min(in_segment);
        self.fetch_bytes(linear, &mut bytes[..first], user)?;
        if self.decode(&bytes[..first], instr)? {
            return Ok(());
        }
        if in_page < in_segment.min(INSTRUCTION_BYTES_MAX) {
            let second = self.linear_after(linear, in_page as u64);
            if long && !canonical(second) {
                return Err(Trap::GP0);
            }
            self.fetch_bytes(second, &mut bytes[first..in_segment], user)?;
            if self.decode(&bytes[..in_segment], instr)? {
                return Ok(());
            }
        }
        // Longer than fifteen bytes, or over the end of the segment.
        Err(Trap::GP0)
    }

    fn fetch_bytes(&mut self, linear: u64, bytes: &mut [u8], user: bool) -> Outcome<()> {
        self.probe_linear(linear, bytes.len(), Intent::Fetch, user)?;
        if self.engine.mmu.read_cached(linear, bytes, user) {
            return Ok(());
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.load_linear(linear + i as u64, 1, user)? as u8;
        }
        Ok(())
    }

    /// False if more bytes are needed.
    fn decode(&self, bytes: &[u8], instr: &mut Instruction) -> Outcome<bool> {
        let mut decoder = Decoder::with_ip(self.cpu.bitness(), bytes, self.cpu.rip, DecoderOptions::NONE);
        decoder.decode_out(instr);
        match decoder.last_error() {
            DecoderError::None => Ok(true),
            DecoderError::NoMoreBytes if bytes.len() < INSTRUCTION_BYTES_MAX => Ok(false),
            DecoderError::NoMoreBytes => Err(Trap::GP0),
            _ => Err(Trap::UD),
        }
    }

    fn check_instruction_breakpoints(&mut self) -> Outcome<()> {
        let dr7 = self.cpu.dr[7];
        if dr7 & 0xff == 0 || self.cpu.flags.has(flags::RF) {
            return Ok(());
        }
        let linear = self.pc();
        for i in 0..4 {
            if dr7 >> (2 * i) & 3 != 0 && dr7 >> (16 + 4 * i) & 3 == 0 && self.cpu.dr[i] == linear {
                self.cpu.dr[6] |= 1 << i;
                return Err(Trap::DB);
            }
        }
        Ok(())
    }

    /// The report for an instruction at RIP that is not modelled.
    pub(crate) fn unsupported(&mut self, what: &str) -> Stop {
        let mut bytes = Vec::new();
        let linear = self.pc();
        for i in 0..INSTRUCTION_BYTES_MAX as u64 {
            let Some(at) = self.physical(linear.wrapping_add(i)) else { break };
            bytes.push(self.memory.read_u8(at));
        }
        let mut decoder = Decoder::with_ip(self.cpu.bitness(), &bytes, self.cpu.rip, DecoderOptions::NONE);
        let instr = decoder.decode();
        let mut disassembly = String::new();
        NasmFormatter::new().format(&instr, &mut disassembly);
        bytes.truncate(instr.len().max(1));
        let address = VirtAddr(linear);
        Stop::Unsupported(Box::new(Unsupported { what: what.into(), address, bytes, disassembly }))
    }
}

impl Exec<'_> {
    /// Does a single-step trap follow this instruction? It does if TF was set when it began. A load of SS
    /// holds the trap back, and a software interrupt has cleared TF on its way; SYSCALL and SYSRET take the
    /// new TF at once.
    fn single_step_due(&self, instr: &Instruction, stepped: bool) -> bool {
        use Mnemonic as M;
        match instr.mnemonic() {
            M::Mov | M::Pop => stepped && instr.op0_register() != iced_x86::Register::SS,
            M::Int | M::Int1 | M::Int3 | M::Into => stepped && self.next == instr.next_ip(),
            M::Syscall | M::Sysret | M::Sysretq => self.cpu.flags.has(flags::TF),
            _ => stepped,
        }
    }
}

//! XBEGIN, XEND, XABORT, XTEST, and what makes a transaction abort.
//!
//! While a transaction is open anywhere, every instruction of every processor is executed by the second tier,
//! which looks at each access before it is made: the accesses of a transaction go into its sets, those of
//! others are compared with them. An exception in a transaction aborts it and is not delivered; so does an
//! instruction that may not be in one, an interrupt, and more written lines than a set of the cache holds.
//! See [`crate::transactions`].

use super::exec::Exec;
use super::flags;
use super::mmu::Intent;
use super::state::{Seg, canonical};
use super::trap::{Outcome, Trap};
use crate::stop::{Kinds, Stop};
use crate::transactions::{Atomicity, NESTING_MAX, Return, SystemCalls, Transaction, status};
use iced_x86::{Instruction, Mnemonic};
use trace::PhysAddr;

/// Executes any of the four instructions.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if x.transactions.tsx.is_none() || instr.has_lock_prefix() {
        return Err(Trap::UD);
    }
    match instr.mnemonic() {
        Mnemonic::Xbegin => begin(x, instr),
        Mnemonic::Xend => end(x),
        Mnemonic::Xabort => {
            if x.transactions.open(x.id).is_some() {
                let code = u32::from(instr.immediate8());
                return Err(Trap::Abort(status::EXPLICIT | code << 24));
            }
            Ok(())
        }
        _ => {
            let outside = x.transactions.open(x.id).is_none();
            x.cpu.flags.set_arithmetic(if outside { flags::ZF } else { 0 });
            Ok(())
        }
    }
}

fn begin(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let target = instr.near_branch_target();
    let fits = if x.cpu.long_code() { canonical(target) } else { target <= x.cpu.seg(Seg::Cs).limit.into() };
    if !fits {
        return Err(Trap::GP0);
    }
    if let Some(open) = x.transactions.open_mut(x.id) {
        if open.nesting == NESTING_MAX {
            return Err(Trap::Abort(0));
        }
        open.nesting += 1;
        return Ok(());
    }
    if let Some(status) = x.refuse.take() {
        x.cpu.regs[super::state::reg::AX] = status.into();
        x.next = target;
        x.ended(Some(status));
        return Ok(());
    }
    if x.stops.on.has(Kinds::TRANSACTION) && !x.pass {
        x.leave = true;
        x.stop = Some(Stop::TransactionBegin);
        return Err(Trap::Held);
    }
    x.transactions.begin(x.id, Transaction::new(x.cpu, target));
    x.leave = true;
    Ok(())
}

fn end(x: &mut Exec) -> Outcome<()> {
    let Some(open) = x.transactions.open_mut(x.id) else { return Err(Trap::GP0) };
    open.nesting -= 1;
    if open.nesting == 0 {
        x.transactions.take(x.id);
        x.ended(None);
    }
    Ok(())
}

/// May this instruction not be in a transaction? Processors differ in the rest of the manual's list; these
/// abort everywhere.
pub(crate) fn aborts(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Cpuid | M::Pause => true,
        // System calls, interrupts and what enters or leaves a ring.
        M::Syscall | M::Sysret | M::Sysretq | M::Sysenter | M::Sysexit | M::Sysexitq | M::Swapgs => true,
        M::Int | M::Int1 | M::Int3 | M::Into | M::Iret | M::Iretd | M::Iretq | M::Retf => true,
        M::Jmp | M::Call => super::far_operand(instr),
        // Input and output.
        M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => true,
        // The interrupt flag and the processor's own state.
        M::Cli | M::Sti | M::Popf | M::Popfd | M::Popfq | M::Clts | M::Lmsw | M::Hlt => true,
        M::Lgdt | M::Lidt | M::Lldt | M::Ltr | M::Rdmsr | M::Wrmsr | M::Rdpmc => true,
        M::Lds | M::Les | M::Lfs | M::Lgs | M::Lss => true,
        M::Fxsave | M::Fxsave64 | M::Fxrstor | M::Fxrstor64 | M::Ud2 => true,
        // Caches and translations.
        M::Clflush | M::Invd | M::Wbinvd | M::Invlpg => true,
        M::Maskmovq | M::Maskmovdqu => true,
        M::Mov => {
            let to = instr.op0_register();
            to.is_segment_register() || to.is_cr() || to.is_dr()
        }
        M::Pop => instr.op0_register().is_segment_register(),
        _ => false,
    }
}

/// Does the instruction ask the kernel for something?
fn calls_kernel(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int)
}

impl Exec<'_> {
    /// The status with which an instruction that may not be in a transaction aborts it.
    pub(crate) fn status_of(&self, instr: &Instruction) -> u32 {
        match self.transactions.tsx.map(|tsx| tsx.system_calls) {
            Some(SystemCalls::Abort { status }) if calls_kernel(instr) => status,
            _ => 0,
        }
    }

    /// A system call that does not abort: the processor leaves its transaction for as long as it takes. Where
    /// it comes back to.
    pub(crate) fn call_outside(&mut self, instr: &Instruction) -> Option<Return> {
        let proceeds = self.transactions.tsx.is_some_and(|tsx| tsx.system_calls == SystemCalls::Proceed);
        let calls = matches!(instr.mnemonic(), Mnemonic::Int | Mnemonic::Syscall) && self.cpu.cpl() == 3;
        if !proceeds || !calls || self.transactions.open(self.id).is_none() {
            return None;
        }
        let to = self.returning();
        self.transactions.call(self.id, to);
        Some(to)
    }

    /// The kernel has returned to a program: perhaps into a transaction.
    pub(crate) fn back_inside(&mut self, instr: &Instruction) {
        use Mnemonic as M;
        let returns = matches!(instr.mnemonic(), M::Iret | M::Iretd | M::Iretq | M::Sysret | M::Sysretq);
        if returns && self.cpu.cpl() == 3 {
            let to = self.returning();
            self.leave |= self.transactions.back(self.id, to);
        }
    }

    /// The next instruction in its address space and on its stack.
    fn returning(&self) -> Return {
        let (address_space, stack) = (self.cpu.cr3, self.cpu.regs[super::state::reg::SP]);
        Return { address_space, rip: self.next, stack }
    }

    /// Does every access have to be looked at?
    pub(crate) fn transactional(&self) -> bool {
        !self.transactions.is_empty()
    }

    /// Takes note that a transaction of this processor committed, or aborted with a status.
    fn ended(&mut self, status: Option<u32>) {
        self.leave = true;
        if self.stops.on.has(Kinds::TRANSACTION_END) {
            self.stop_after(Stop::TransactionEnd { status });
        }
    }

    /// Aborts this processor's transaction, if it is in one. True if it was.
    pub(crate) fn abort(&mut self, status: u32) -> bool {
        let Some(mut open) = self.transactions.take(self.id) else { return false };
        for (line, held) in open.take_undo() {
            self.write_back(line, &held);
        }
        let status = open.doomed.unwrap_or(status);
        open.restore(self.cpu, status);
        self.next = self.cpu.rip;
        self.repeating = false;
        let status = self.cpu.regs[super::state::reg::AX] as u32;
        self.ended(Some(status));
        true
    }

    /// Restores the registers, if somebody else aborted the transaction and memory is restored already. True
    /// if so.
    pub(crate) fn abort_doomed(&mut self) -> bool {
        self.transactions.open(self.id).is_some_and(|open| open.doomed.is_some()) && self.abort(0)
    }

    fn write_back(&mut self, line: u64, held: &[u8]) {
        for (piece, at) in held.chunks(8).zip((line..).step_by(8)) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.store_physical(at, piece.len(), u64::from_le_bytes(word));
        }
    }

    /// Prepares an access that is about to be made, inside a transaction or beside one.
    pub(crate) fn transact(&mut self, linear: u64, size: usize, intent: Intent, user: bool) -> Outcome<()> {
        let Some(tsx) = self.transactions.tsx else { return Ok(()) };
        let line_bytes = u64::from(tsx.line_bytes);
        let write = intent == Intent::Write;
        let mut done = 0;
        while done < size as u64 {
            let at = self.linear_after(linear, done);
            let physical = self.translate(at, intent, user)?;
            let line = physical & !(line_bytes - 1);
            let here = (line + line_bytes - physical).min(0x1000 - (at & 0xfff));
            done += here;
            if self.board.mmio_claims(PhysAddr(physical)) {
                if self.transactions.open(self.id).is_some() {
                    return Err(Trap::Abort(0));
                }
                continue;
            }
            self.doom_others(line, write);
            let Some(open) = self.transactions.open_mut(self.id) else { continue };
            if !write {
                open.add_read(line);
            } else if !open.has_written(line) {
                let mut held = vec![0; line_bytes as usize];
                self.memory.read(PhysAddr(line), &mut held);
                if !open.add_written(&tsx, line, held) {
                    return Err(Trap::Abort(status::CAPACITY));
                }
            }
        }
        Ok(())
    }

    /// Aborts the transactions that an access to this line conflicts with.
    fn doom_others(&mut self, line: u64, write: bool) {
        let weak = self.transactions.tsx.is_some_and(|tsx| tsx.atomicity == Atomicity::Weak);
        if weak && self.transactions.open(self.id).is_none() {
            return;
        }
        let mut undo = Vec::new();
        for other in self.transactions.others(self.id) {
            if other.conflicts(line, write) {
                other.doomed = Some(status::CONFLICT | status::RETRY);
                undo.push(other.take_undo());
            }
        }
        for (line, held) in undo.into_iter().flatten() {
            self.write_back(line, &held);
        }
    }
}

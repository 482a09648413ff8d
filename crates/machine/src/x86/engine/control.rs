//! Handlers that decide what runs next, and the way into the second tier.

use super::code::ENDS;
use super::handlers::{ADD, CMP, SUB, TEST, compute, count};
use super::op::{
    Far, Frame, Handler, Links, Op, State, TAG_ADDRESS, Why, carries, compares, handlers, holds, jump_index,
    signed, tests,
};
use crate::x86::exec::Exec;
use crate::x86::flags::{DF, Flags, RF, VM};
use crate::x86::mmu::Tlb;
use crate::x86::state::{Seg, canonical};
use crate::x86::trap::Outcome;
use iced_x86::Instruction;
use trace::PhysAddr;

impl State {
    /// Goes on with one of the two operations in the slot after this one. `W` tells where the block's length
    /// is: of operations with a 64-bit address, in `b`.
    #[inline(always)]
    unsafe fn link<const W: usize>(self, slots: usize, taken: bool) {
        // SAFETY: as for all methods of `State`; the translator put links into that slot.
        unsafe {
            let links = self.op.add(slots).cast::<Links>();
            // A branch of the host, not a choice between two pointers: it predicts the one far better than
            // the targets of one more indirect jump (hot code runs 1.5 times as fast). The empty assembly
            // keeps the optimiser from making a choice of it again.
            let count = if W == 8 { self.o().b } else { self.o().d };
            if taken {
                let target = (*links).taken;
                std::arch::asm!("", options(nomem, nostack, preserves_flags));
                self.end(count, target)
            } else {
                self.end(count, (*links).otherwise)
            }
        }
    }
}

handlers! {
    /// Instead of the block at this operation: there is no time for another one.
    #[cold]
    fn expired(s) {
        let exec = exec_of(s.f);
        let rip = exec.engine.code.address(s.op);
        s.leave(Why::Expired, rip)
    }
    /// A jump whose target, in `Frame::rip`, is not where the jump cache looks first.
    #[cold]
    fn jump_miss(s) {
        let f = &*s.f;
        let target = f.rip;
        if f.remaining < 0 {
            return s.leave(Why::Expired, target);
        }
        let jump = *f.jumps.add(jump_index(target) ^ 1);
        if jump.tag == f.tag | target & TAG_ADDRESS {
            s.go(jump.op)
        } else {
            s.leave(Why::Lookup, target)
        }
    }
    /// Start of a block that no longer exists.
    #[cold]
    fn dead(s) {
        let exec = exec_of(s.f);
        let rip = exec.engine.code.address(s.op);
        s.leave(Why::Lookup, rip)
    }
    /// Start of a block at an address where runs stop.
    #[cold]
    fn stop_here(s) {
        let exec = exec_of(s.f);
        let rip = exec.cpu.code_offset(exec.engine.code.address(s.op));
        s.leave(Why::Break, rip)
    }
    /// Start of a block at an address that some runs note.
    fn note(s) {
        if notes(&mut *s.f, s.op) {
            return s.next(1);
        }
        let exec = exec_of(s.f);
        let rip = exec.cpu.code_offset(exec.engine.code.address(s.op));
        s.leave(Why::Break, rip)
    }
    /// Stub: the way out of a block whose successor is not known yet.
    #[cold]
    fn unlinked(s) {
        let rip = exec_of(s.f).engine.code.address(s.op);
        s.leave(Why::Link, rip)
    }
    /// Stub: the way out of a block whose addresses are offsets into a segment.
    fn outside(s) { s.leave(Why::Lookup, s.o().imm.into()) }
    /// JMP to another page.
    fn jump_far(s) {
        let count = s.o().d;
        s.far(count)
    }
    /// Stub: the way to another page, the block already ended.
    fn elsewhere(s) { s.far(0) }
    /// The remembered target belongs to other translations, or there is none yet.
    #[cold]
    fn far_miss(s) {
        let exec = exec_of(s.f);
        let (target, count) = exec.engine.code.far_target(s.op);
        (*s.f).remaining -= i64::from(count);
        if (*s.f).remaining < 0 {
            return s.leave(Why::Expired, target);
        }
        let at = jump_index(target);
        let (key, tag) = ((*s.f).key, (*s.f).tag);
        for at in [at, at ^ 1] {
            let jump = *(*s.f).jumps.add(at);
            if jump.tag == tag | target & TAG_ADDRESS {
                s.op.add(1).cast_mut().cast::<Far>().write(Far { key, target: jump.op });
                return s.go(jump.op);
            }
        }
        s.leave(Why::LinkFar, target)
    }
    /// JMP, or the end of a block that ends for no reason of its own.
    fn jump_direct(s) { s.link::<4>(1, true) }
    fn jump_cc<const CC: u8>(s) {
        let taken = holds::<CC>(s.r, s.c);
        s.link::<4>(1, taken)
    }
    /// CMP or TEST of registers, and the jump on its outcome.
    fn fused_rr<const K: u8, const Z: usize, const CC: u8>(s) {
        let (a, b) = (s.get::<Z>(s.o().a), s.get::<Z>(s.o().b));
        let taken = fused::<K, Z, CC>(&mut s, a, b);
        s.link::<4>(1, taken)
    }
    fn fused_ri<const K: u8, const Z: usize, const CC: u8>(s) {
        let (a, b) = (s.get::<Z>(s.o().a), s.immediate::<Z>());
        let taken = fused::<K, Z, CC>(&mut s, a, b);
        s.link::<4>(1, taken)
    }
    /// Arithmetic on a register and the jump on its outcome; 16 in `K` means INC or DEC.
    fn alu_rr_jump<const K: u8, const Z: usize, const CC: u8>(s) {
        let (a, b) = (s.o().a, s.o().b);
        let result = compute::<K, Z>(s.get::<Z>(a), s.get::<Z>(b), &mut s);
        s.set::<Z>(a, result);
        let taken = holds::<CC>(s.r, s.c);
        s.link::<4>(1, taken)
    }
    fn alu_ri_jump<const K: u8, const Z: usize, const CC: u8>(s) {
        let (a, b) = (s.o().a, s.immediate::<Z>());
        let result = match K {
            16 => count::<ADD, Z>(s.get::<Z>(a), &mut s),
            21 => count::<SUB, Z>(s.get::<Z>(a), &mut s),
            _ => compute::<K, Z>(s.get::<Z>(a), b, &mut s),
        };
        s.set::<Z>(a, result);
        let taken = holds::<CC>(s.r, s.c);
        s.link::<4>(1, taken)
    }
    /// CMP or TEST of memory with the immediate in the next slot; then the jump alone, for when this one
    /// could not be done; then where it goes.
    fn fused_mi<const K: u8, const Z: usize, const F: u8, const CC: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let (a, b) = (State::load::<Z>(at), s.second_immediate::<Z>());
        let taken = fused::<K, Z, CC>(&mut s, a, b);
        s.op = s.op.add(2);
        s.link::<4>(1, taken)
    }
    fn fused_rm<const Z: usize, const F: u8, const CC: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let (a, b) = (s.get::<Z>(s.o().a), State::load::<Z>(at));
        let taken = fused::<CMP, Z, CC>(&mut s, a, b);
        s.op = s.op.add(2);
        s.link::<4>(1, taken)
    }
    fn fused_mr<const Z: usize, const F: u8, const CC: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let (a, b) = (State::load::<Z>(at), s.get::<Z>(s.o().a));
        let taken = fused::<CMP, Z, CC>(&mut s, a, b);
        s.op = s.op.add(2);
        s.link::<4>(1, taken)
    }
    fn jump_r<const W: usize>(s) {
        let target = s.get::<W>(s.o().a);
        if !reachable::<W>(target) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let count = s.o().d;
        s.jump(count, target)
    }
    fn jump_m<const W: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<W>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let target = State::load::<W>(at);
        if !reachable::<W>(target) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let count = s.o().a;
        s.jump(count, target)
    }
    /// CALL to a known address; the address in the operation is where it returns to.
    fn call_direct<const W: usize>(s) {
        let back = back::<W>(&s);
        if !s.push::<W>(back) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.foresee(1, back);
        s.link::<W>(1, true)
    }
    /// CALL into another page.
    fn call_far<const W: usize>(s) {
        let back = back::<W>(&s);
        if !s.push::<W>(back) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.foresee(2, back);
        let count = if W == 8 { s.o().b } else { s.o().d };
        s.far(count)
    }
    fn call_r<const W: usize>(s) {
        let target = s.get::<W>(s.o().a);
        let back = back::<W>(&s);
        if !reachable::<W>(target) || !s.push::<W>(back) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.foresee(1, back);
        let count = if W == 8 { s.o().b } else { s.o().d };
        s.jump(count, target)
    }
    /// CALL through memory; the return address is in the next slot.
    fn call_m<const W: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<W>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let target = State::load::<W>(at);
        let stack = s.below::<W>();
        let (hit, to) = s.writable::<W>(stack);
        if !hit || !reachable::<W>(target) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        s.log_second::<F>(stack);
        let back = s.second_wide();
        State::store::<W>(to, back);
        s.set::<W>(32, stack);
        s.foresee(2, back);
        let count = s.o().a;
        s.jump(count, target)
    }
    /// RET; `imm` is what it releases beyond the return address.
    fn ret<const W: usize>(s) {
        let address = s.get::<W>(32);
        let (hit, at) = s.readable::<W>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let target = State::load::<W>(at);
        if !reachable::<W>(target) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log_wide::<W>(address);
        s.set::<W>(32, address.wrapping_add(W as u64 + u64::from(s.o().imm)));
        let count = s.o().d;
        s.return_to(count, target)
    }
    /// RET to an address, in `Frame::rip`, that was not foreseen.
    fn return_elsewhere(s) {
        let (count, target) = (s.o().d, (*s.f).rip);
        s.jump(count, target)
    }
    /// PUSHF: VM and RF read as zero. Kernels look at the interrupt flag by it, some at every turn.
    fn push_flags<const W: usize>(s) {
        let Flags { other, .. } = exec_of(s.f).cpu.flags;
        let image = Flags { result: s.r, carry: s.c, other }.image() & !(VM | RF);
        if !s.push::<W>(image.into()) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.next(1)
    }
    /// An instruction that only the second tier knows; `imm` is its number among the decoded ones.
    fn generic(s) {
        let f = &mut *s.f;
        f.op = s.op;
        f.log = s.log;
        f.result = s.r;
        f.carry = s.c;
        let slots = second_tier(f, Some(s.o().imm));
        if slots == 0 {
            return;
        }
        s.log = f.log;
        s.r = f.result;
        s.c = f.carry;
        s.next(slots)
    }
    /// Four bytes from where no memory is known to be: a kernel may ask its interrupt controller for the
    /// number of the processor, some at every lock, and nothing need be left for that.
    #[cold]
    fn load_constant<const F: u8>(s) {
        let address = s.address::<F>();
        let Some(value) = device_constant(s.f, address) else {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        };
        s.log::<F>(address);
        s.set::<4>(s.o().a, value.into());
        s.next(1)
    }
    /// Begins a block whose accesses some runs do not log.
    fn hush(s) {
        (*s.f).log_step = (*s.f).hushed_step;
        s.next(1)
    }
    /// Stands before the last operation of such a block.
    fn unhush(s) {
        (*s.f).log_step = (*s.f).plain_step;
        s.next(1)
    }
    /// Hands to the second tier an instruction that has a handler of its own, which could not do it this
    /// time.
    #[cold]
    fn retry(s) {
        let f = &mut *s.f;
        f.op = s.op;
        f.log = s.log;
        f.result = s.r;
        f.carry = s.c;
        let slots = second_tier(f, None);
        if slots == 0 {
            return;
        }
        s.log = f.log;
        s.r = f.result;
        s.c = f.carry;
        s.next(slots)
    }
}

/// Is an address of `W` bytes one that code can be at?
#[inline(always)]
fn reachable<const W: usize>(target: u64) -> bool {
    W != 8 || canonical(target)
}

/// The return address in the operation.
#[inline(always)]
unsafe fn back<const W: usize>(s: &State) -> u64 {
    // SAFETY: as for all handlers.
    unsafe { if W == 8 { State::fixed(s.op) } else { s.o().imm.into() } }
}

#[inline(always)]
fn fused<const K: u8, const Z: usize, const CC: u8>(s: &mut State, a: u64, b: u64) -> bool {
    const { assert!(K == CMP || K == TEST) };
    if K == CMP {
        let difference = a.wrapping_sub(b);
        s.c = carries::<Z>(a, b, difference, a < b);
        s.r = signed::<Z>(difference);
        compares::<CC, Z>(a, b)
    } else {
        s.c = 0;
        s.r = signed::<Z>(a & b);
        tests::<CC>(s.r)
    }
}

unsafe fn exec_of<'a>(f: *mut Frame) -> &'a mut Exec<'a> {
    // SAFETY: the frame is only used while the `Exec` that made it waits for compiled code to return.
    unsafe { &mut *(*f).exec.cast::<Exec<'a>>() }
}

/// Four bytes of a device at this address that reading does not change, if they are known without asking the
/// device, and nobody watches.
#[inline(never)]
unsafe fn device_constant(f: *mut Frame, linear: u64) -> Option<u32> {
    // SAFETY: the frame is that of the running compiled code.
    let x = unsafe { exec_of(f) };
    let user = x.cpu.cpl() == 3;
    let physical = x.engine.mmu.device_read(linear, user).filter(|_| x.stops.watch.is_empty())?;
    x.board.mmio_constant(x.id, PhysAddr(physical), 4)
}

/// Notes that the block of this operation comes next, if the run wants that. False if it must be seen to first.
#[inline(never)]
unsafe fn notes(f: &mut Frame, op: *const Op) -> bool {
    // SAFETY: the frame is that of the running compiled code.
    let x = unsafe { exec_of(f) };
    x.passes(x.engine.code.address(op), &f.regs)
}

/// Executes the instruction of the present operation in the second tier. Gives how many slots further to go
/// on, or 0 if compiled code must be left; then `Frame::why` says so and the processor's state is up to date.
#[inline(never)]
unsafe fn second_tier(f: &mut Frame, decoded: Option<u32>) -> usize {
    // SAFETY: the frame is that of the running compiled code.
    let x = unsafe { exec_of(f) };
    let meta = x.engine.code.meta(f.op);
    let ends = meta.access() & ENDS != 0;
    x.cpu.regs = f.regs;
    x.cpu.flags.result = f.result;
    x.cpu.flags.carry = f.carry;
    x.cpu.rip = x.cpu.code_offset(meta.pc());
    let executed = f.executed(meta.index());
    x.now = x.now.wrapping_add(executed.wrapping_sub(x.cpu.executed));
    x.cpu.executed = executed;
    x.take_log(f.log);
    x.leave = false;
    // SAFETY: `op` is the present operation of the block store.
    let outcome = unsafe { run_one(x, f.op, decoded) };
    let failed = outcome.is_err();
    x.finish(outcome);
    if failed || x.leave || ends || x.repeating {
        f.why = Why::Left;
        return 0;
    }
    f.regs = x.cpu.regs;
    f.bases = [Seg::Fs, Seg::Gs].map(|seg| x.cpu.seg(seg).base);
    f.down = (x.cpu.flags.other & DF).into();
    f.result = x.cpu.flags.result;
    f.carry = x.cpu.flags.carry;
    f.log = x.give_log((f.limit - x.cpu.executed) as usize);
    meta.slots()
}

unsafe fn run_one(x: &mut Exec, op: *const Op, decoded: Option<u32>) -> Outcome<()> {
    if let Some(number) = decoded {
        let instr: Instruction = x.engine.code.instructions[number as usize];
        return x.execute(&instr);
    }
    if let Some(instr) = x.engine.code.retried(op) {
        return x.execute(&instr);
    }
    let mut instr = Instruction::default();
    x.fetch(&mut instr)?;
    // An instruction with a handler of its own is inside the page its block came from, and so cannot change
    // while the block lives.
    // SAFETY: `op` is an operation of the block store.
    if !std::ptr::fn_addr_eq(unsafe { (*op).handler }, retry as Handler) {
        x.engine.code.remember_retried(op, &instr);
    }
    x.execute(&instr)
}

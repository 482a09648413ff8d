//! Finding, making and entering blocks.

use super::code::Key;
use super::op::{Frame, INSTRUCTIONS_MAX, Op, Why};
use super::translate::translate;
use super::{MODE_64, MODE_FLAT, MODE_PAST_STOP, MODE_USER, mode};
use crate::events::LeaveOut;
use crate::memory::PAGE;
use crate::x86::exec::Exec;
use crate::x86::flags::DF;
use crate::x86::mmu::{Intent, Mmu};
use crate::x86::state::Seg;

/// What running compiled code came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// Compiled code ran as far as it could; look what there is to do and call again.
    On,
    /// The instructions up to the limit are fewer than a block.
    Tail,
    /// The next instruction is at an address where this run or another stops.
    Break,
    /// No block can be made for the next instruction: execute it alone.
    Single,
    /// There is no room for another block.
    Full,
}

impl Exec<'_> {
    /// Runs compiled code until `limit` instructions have been executed by this processor, at most, or
    /// something else must be looked at first. `past_stop`: even if a run stops at the first of them.
    pub(crate) fn compiled(&mut self, limit: u64, mut past_stop: bool) -> Ran {
        let mode = mode(self.cpu);
        let key = u64::from(self.engine.mmu.epoch()) << 5 | u64::from(mode);
        let tag = self.engine.code.tag(key);
        let log_step = self.events.log_step();
        let mut frame = Frame {
            regs: self.cpu.regs,
            zero: 0,
            bases: [Seg::Fs, Seg::Gs].map(|seg| self.cpu.seg(seg).base),
            remaining: (limit - self.cpu.executed) as i64 - i64::from(INSTRUCTIONS_MAX),
            log_step,
            hushed_step: if self.events.leave_out == LeaveOut::Code { 0 } else { log_step },
            plain_step: log_step,
            key,
            tag,
            jumps: self.engine.code.jumps(),
            returns: self.engine.code.returns(),
            returns_top: self.engine.code.returns_top,
            down: (self.cpu.flags.other & DF).into(),
            watched: self.engine.mmu.watched(),
            exec: (&raw mut *self).cast(),
            limit,
            op: std::ptr::null(),
            log: std::ptr::null_mut(),
            result: self.cpu.flags.result,
            carry: self.cpu.flags.carry,
            rip: self.cpu.rip,
            why: Why::Lookup,
        };
        loop {
            let remember = match frame.why {
                Why::Link => false,
                // The first time; a second is for another address space, and they may take turns.
                Why::LinkFar => self.engine.code.linked_far(frame.op),
                _ => true,
            };
            let found = match std::mem::take(&mut past_stop) {
                true => {
                    // By a tag of its own, so that compiled code does not find the way.
                    let tag = self.engine.code.tag(key | u64::from(MODE_PAST_STOP));
                    self.block(mode | MODE_PAST_STOP, tag, true)
                }
                false => self.block(mode, tag, remember),
            };
            let op = match found {
                Ok(op) => op,
                Err(ran) => return ran,
            };
            match frame.why {
                Why::Link => self.engine.code.link(frame.op, op),
                Why::LinkFar => self.engine.code.link_far(frame.op, key, op),
                _ => {}
            }
            let left = limit - self.cpu.executed;
            if left < INSTRUCTIONS_MAX.into() && u64::from(self.engine.code.count(op)) > left {
                return Ran::Tail;
            }
            if self.events.counted {
                self.events.begin_block(self.cpu.executed);
                // No other block may follow this one.
                frame.remaining = 0;
                frame.limit = self.cpu.executed + u64::from(INSTRUCTIONS_MAX);
            }
            let log = self.give_log(left as usize);
            let tlb: *const _ = self.engine.mmu.tlb(mode & MODE_USER != 0);
            // SAFETY: `op` is the start of a live block; frame, TLB and log outlive the call, and the log has
            // room for all accesses of a stretch.
            unsafe { ((*op).handler)(&raw mut frame, op, log, frame.result, frame.carry, tlb) };
            self.engine.code.returns_top = frame.returns_top;
            if frame.why == Why::Left {
                return Ran::On;
            }
            self.take_log(frame.log);
            self.cpu.regs = frame.regs;
            self.cpu.flags.result = frame.result;
            self.cpu.flags.carry = frame.carry;
            self.cpu.rip = frame.rip;
            let executed = frame.executed(0);
            self.now = self.now.wrapping_add(executed.wrapping_sub(self.cpu.executed));
            self.cpu.executed = executed;
            match frame.why {
                Why::Expired if executed == limit => return Ran::On,
                Why::Break => return Ran::Break,
                _ => {}
            }
        }
    }

    /// The block for the instruction at RIP.
    fn block(&mut self, mode: u32, tag: u64, remember: bool) -> Result<*const Op, Ran> {
        let linear = self.pc();
        let flat = mode & MODE_FLAT != 0;
        if flat
            && remember
            && let Some(op) = self.engine.code.jump(tag, linear)
        {
            return Ok(op);
        }
        let user = mode & MODE_USER != 0;
        let entry = self.engine.mmu.tlb(user).entries[Mmu::index(linear)];
        let physical = if entry.allows(linear & !0xfff, Intent::Fetch) {
            u64::from(entry.frame) << 12 | linear & 0xfff
        } else {
            self.translate(linear, Intent::Fetch, user).map_err(|_| Ran::Single)?
        };
        let frame = physical >> 12;
        // Blocks do not look for the end of the code segment: it must lie behind their page.
        let rest = 0xfff - (linear & 0xfff);
        let limit = self.cpu.seg(Seg::Cs).limit;
        if frame >= self.memory.frames() || mode & MODE_64 == 0 && self.cpu.rip + rest > limit.into() {
            return Err(Ran::Single);
        }
        let key = Key { physical, linear, offset: self.cpu.rip, mode };
        let op = match self.engine.code.find(&key) {
            Some(op) => op,
            None => {
                if self.engine.code.full() {
                    return Err(Ran::Full);
                }
                self.engine.mmu.flag_code(frame);
                let bytes = self.memory.frame_ptr(frame).expect("inside memory");
                // SAFETY: a whole page of memory, which translation does not change.
                let page = unsafe { std::slice::from_raw_parts(bytes, PAGE) };
                translate(&mut self.engine.code, key, page)
            }
        };
        if flat && remember {
            self.engine.code.remember_jump(tag, linear, op);
        }
        Ok(op)
    }

    /// Takes over what compiled code logged, up to `end`.
    pub(super) fn take_log(&mut self, end: *const u64) {
        if self.events.accesses {
            let words = (end as usize - self.events.words.as_ptr() as usize) / 8;
            assert!(words <= self.events.words.capacity());
            // SAFETY: inside the capacity, and compiled code wrote every word up to `end`.
            unsafe { self.events.words.set_len(words) };
        }
    }

    /// Where compiled code may log all accesses of as many instructions.
    pub(super) fn give_log(&mut self, instructions: usize) -> *mut u64 {
        let words = &mut self.events.words;
        let wanted = instructions * self.cpu.log_words();
        words.reserve(if self.events.accesses { wanted + 64 } else { 64 });
        words.spare_capacity_mut().as_mut_ptr().cast()
    }
}

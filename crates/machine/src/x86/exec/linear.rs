//! Accesses by linear and by physical address: alignment, paging, watched words, the log.

use super::super::flags;
use super::super::mmu::{Intent, Mmu, WATCHED, walk};
use super::super::state::cr0;
use super::super::trap::{Outcome, Trap};
use super::Exec;
use crate::events::Access;
use crate::stop::Stop;
use trace::{AccessKind, PhysAddr, VirtAddr};

impl Exec<'_> {
    pub(crate) fn check_alignment(&self, linear: u64, size: usize) -> Outcome<()> {
        if linear & (size as u64 - 1) != 0
            && self.cpu.flags.has(flags::AC)
            && self.cpu.cr0 & cr0::AM != 0
            && self.cpu.cpl() == 3
            && size.is_power_of_two()
        {
            return Err(Trap::AC);
        }
        Ok(())
    }

    /// Logs an access that happened, and ends the run if it was watched for.
    pub(crate) fn record(&mut self, linear: u64, size: usize, kind: AccessKind) {
        if self.implicit {
            return;
        }
        if self.events.accesses {
            self.events.push_access(linear, size as u32, kind, self.atomic, self.pc(), self.cpu.executed);
            if kind == AccessKind::Write && self.modifies {
                self.modifies = false;
                self.events.join_update();
            }
        }
        if !self.stops.watch.is_empty() || self.cpu.dr[7] & 0xff != 0 {
            self.watch(linear, size as u64, kind);
        }
    }

    #[cold]
    pub(super) fn watch(&mut self, linear: u64, size: u64, kind: AccessKind) {
        let overlaps =
            |start: u64, bytes: u64| linear.wrapping_sub(start) < bytes || start.wrapping_sub(linear) < size;
        for watch in self.stops.watch.iter() {
            let wanted = if kind == AccessKind::Read { watch.reads } else { watch.writes };
            if wanted && overlaps(watch.start.0, watch.bytes) && self.stop.is_none() {
                self.stop = Some(Stop::Watchpoint(Access {
                    address: VirtAddr(linear),
                    physical: self.physical(linear),
                    size: size as u32,
                    kind,
                    atomic: self.atomic,
                    pc: VirtAddr(self.pc()),
                    instruction: Some(self.cpu.executed),
                }));
                self.leave = true;
            }
        }
        for i in 0..4 {
            let (enable, control) = (self.cpu.dr[7] >> (2 * i) & 3, self.cpu.dr[7] >> (16 + 4 * i) & 15);
            let bytes = [1, 2, 8, 4][(control >> 2) as usize];
            let wanted = matches!((control & 3, kind), (1, AccessKind::Write) | (3, _));
            if enable != 0 && wanted && overlaps(self.cpu.dr[i] & !(bytes - 1), bytes) {
                self.cpu.dr[6] |= 1 << i;
                self.cpu.trap_pending = true;
                self.leave = true;
            }
        }
    }

    /// Prepares an access that is about to be made. Ends the run before one to a word of [`StopSet::before`]:
    /// like a fault, except that the guest does not see it; an access that will fault goes on to do so.
    /// Transactions are logged.
    #[inline]
    pub(crate) fn before(&mut self, linear: u64, size: usize, intent: Intent, user: bool) -> Outcome<()> {
        let words = !self.stops.before.is_empty() && !self.pass;
        if !words && !self.transactional() || self.implicit || intent == Intent::Fetch {
            return Ok(());
        }
        if words && let Some(word) = self.watched_word(linear, size, intent, user) {
            return self.hold(linear, size, intent, word);
        }
        if self.transactional() { self.transact(linear, size, intent, user) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn hold(&mut self, linear: u64, size: usize, intent: Intent, word: PhysAddr) -> Outcome<()> {
        let access = Access {
            address: VirtAddr(linear),
            physical: self.physical(linear),
            size: size as u32,
            kind: if intent == Intent::Write { AccessKind::Write } else { AccessKind::Read },
            atomic: self.atomic,
            pc: VirtAddr(self.pc()),
            instruction: Some(self.cpu.executed),
        };
        self.leave = true;
        self.stop = Some(Stop::Before { access, word });
        Err(Trap::Held)
    }

    /// The word of [`StopSet::before`] that an access to these bytes would touch.
    #[inline(never)]
    pub(super) fn watched_word(
        &mut self,
        linear: u64,
        size: usize,
        intent: Intent,
        user: bool,
    ) -> Option<PhysAddr> {
        let in_first = size.min(0x1000 - (linear & 0xfff) as usize);
        let second = self.linear_after(linear, in_first as u64);
        for (at, bytes) in [(linear, in_first), (second, size - in_first)] {
            if bytes == 0 {
                continue;
            }
            let entry = &self.engine.mmu.tlb(user).entries[Mmu::index(at)];
            let page = at & !0xfff;
            let tag = if intent == Intent::Write { entry.write } else { entry.read };
            if tag == page {
                continue;
            }
            let words = &self.stops.before;
            let physical = if tag == page | WATCHED {
                u64::from(entry.frame) << 12 | at & 0xfff
            } else {
                // A fault in either page comes first.
                let walk = walk(self.cpu, self.memory, at, intent, user).ok()?;
                let read = walk.entries().iter().map(|&entry| PhysAddr(entry));
                if words.walks
                    && let Some(word) = read.into_iter().find(|&entry| words.contains(entry))
                {
                    return Some(PhysAddr(word.0 & !7));
                }
                walk.physical
            };
            if let Some(word) = words.first_of(PhysAddr(physical), bytes as u64) {
                return Some(word);
            }
        }
        None
    }

    /// Where a linear address leads now, without effects; `None` if it is not mapped.
    #[must_use]
    pub fn physical(&self, linear: u64) -> Option<PhysAddr> {
        walk(self.cpu, self.memory, linear, Intent::Read, false).ok().map(|w| PhysAddr(w.physical))
    }

    /// Linear address of the current instruction.
    #[inline]
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.cpu.pc()
    }

    // ---- memory by linear address

    /// Translates, with accessed and dirty bits, and remembers the translation.
    pub(crate) fn translate(&mut self, linear: u64, intent: Intent, user: bool) -> Outcome<u64> {
        if intent == Intent::Read
            && let Some(physical) = self.engine.mmu.device_read(linear, user)
        {
            return Ok(physical);
        }
        let done = walk(self.cpu, self.memory, linear, intent, user)?;
        for &(at, entry) in done.updates() {
            self.store_table_entry(at, &entry.to_le_bytes()[..done.entry_bytes()]);
        }
        self.engine.mmu.fill(self.memory, linear, &done, user, intent == Intent::Write);
        Ok(done.physical)
    }

    /// Sets accessed and dirty bits, which no cached translation depends on.
    pub(super) fn store_table_entry(&mut self, at: u64, entry: &[u8]) {
        let frame = at >> 12;
        if frame < self.memory.frames() && self.engine.mmu.is_code(frame) {
            self.engine.drop_code(frame, at as usize & 0xfff, entry.len());
            self.leave = true;
        }
        if let Some((page, moved)) = self.memory.frame_ptr_mut(frame) {
            if moved {
                self.engine.mmu.forget_frame(frame);
            }
            self.engine.poke(page, at as usize & 0xfff, entry);
        }
    }

    /// Faults as an access to these bytes would; sets accessed and dirty bits.
    pub(crate) fn probe_linear(
        &mut self,
        linear: u64,
        size: usize,
        intent: Intent,
        user: bool,
    ) -> Outcome<()> {
        self.before(linear, size, intent, user)?;
        let first = linear & !0xfff;
        let last = self.linear_after(linear, size as u64 - 1) & !0xfff;
        for page in [first, last] {
            let entry = &self.engine.mmu.tlb(user).entries[Mmu::index(page)];
            if !entry.allows(page, intent) {
                let at = if page == first { linear } else { page };
                self.translate(at, intent, user)?;
            }
            if first == last {
                break;
            }
        }
        Ok(())
    }

    /// Reads up to eight bytes as the processor's paging unit allows.
    #[inline]
    pub(crate) fn load_linear(&mut self, linear: u64, size: usize, user: bool) -> Outcome<u64> {
        if let Some(value) = self.engine.mmu.load_cached(linear, size, user) {
            return Ok(value);
        }
        self.load_slow(linear, size, user)
    }

    pub(super) fn load_slow(&mut self, linear: u64, size: usize, user: bool) -> Outcome<u64> {
        let in_first = 0x1000 - (linear & 0xfff) as usize;
        if size <= in_first {
            let physical = self.translate(linear, Intent::Read, user)?;
            return Ok(self.load_physical(physical, size));
        }
        let second = self.linear_after(linear, in_first as u64);
        let a = self.translate(linear, Intent::Read, user)?;
        let b = self.translate(second, Intent::Read, user)?;
        let low = self.load_physical(a, in_first);
        let high = self.load_physical(b, size - in_first);
        Ok(low | high << (8 * in_first))
    }

    /// Writes up to eight bytes; a write across two pages happens whole or not at all.
    #[inline]
    pub(crate) fn store_linear(&mut self, linear: u64, size: usize, value: u64, user: bool) -> Outcome<()> {
        if self.engine.mmu.store_cached(linear, size, user, value) {
            return Ok(());
        }
        self.store_slow(linear, size, value, user)
    }

    pub(super) fn store_slow(&mut self, linear: u64, size: usize, value: u64, user: bool) -> Outcome<()> {
        let in_first = 0x1000 - (linear & 0xfff) as usize;
        if size <= in_first {
            let physical = self.translate(linear, Intent::Write, user)?;
            self.store_physical(physical, size, value);
            return Ok(());
        }
        let second = self.linear_after(linear, in_first as u64);
        let a = self.translate(linear, Intent::Write, user)?;
        let b = self.translate(second, Intent::Write, user)?;
        self.store_physical(a, in_first, value);
        self.store_physical(b, size - in_first, value >> (8 * in_first));
        Ok(())
    }

    // ---- the bus

    /// Reads memory or a device; never crosses a page.
    pub(crate) fn load_physical(&mut self, physical: u64, size: usize) -> u64 {
        if self.board.mmio_claims(PhysAddr(physical)) {
            if let Some(word) = self.board.mmio_constant(self.id, PhysAddr(physical), size) {
                return word.into();
            }
            self.leave = true;
            return self.board.mmio_read(self.now, self.id, PhysAddr(physical), size as u8)
                & flags::mask(size);
        }
        let at = PhysAddr(physical);
        // Of these sizes it is one load each.
        match size {
            1 => self.memory.read_u8(at).into(),
            2 => self.memory.read_u16(at).into(),
            4 => self.memory.read_u32(at).into(),
            8 => self.memory.read_u64(at),
            _ => {
                let mut bytes = [0; 8];
                self.memory.read(at, &mut bytes[..size]);
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Writes memory or a device; never crosses a page.
    pub(crate) fn store_physical(&mut self, physical: u64, size: usize, value: u64) {
        if self.board.mmio_claims(PhysAddr(physical)) {
            self.board.mmio_write(
                self.now,
                self.id,
                PhysAddr(physical),
                size as u8,
                value & flags::mask(size),
            );
            self.leave = true;
            return;
        }
        let (frame, offset) = (physical >> 12, physical as usize & 0xfff);
        if frame >= self.memory.frames() || self.memory.is_rom(frame) {
            return;
        }
        if self.engine.mmu.is_code(frame) && self.engine.drop_code(frame, offset, size) {
            self.leave = true;
        }
        if self.engine.mmu.is_table(frame) && self.table_write_matters(physical, size, value) {
            self.events.note_translations(self.cpu, self.memory, &self.engine.code);
            self.engine.mmu.flush();
            self.leave = true;
        }
        let (page, moved) = self.memory.frame_ptr_mut(frame).expect("inside memory");
        if moved {
            self.engine.mmu.forget_frame(frame);
        }
        self.engine.poke(page, offset, &value.to_le_bytes()[..size]);
    }

    /// Does a write to a page table change an entry that a cached translation may come from? Entries that
    /// were not present cannot be cached.
    pub(super) fn table_write_matters(&self, physical: u64, size: usize, value: u64) -> bool {
        self.engine.mmu.entry_sizes().any(|bytes| self.entry_changes(physical, size, value, bytes))
    }

    pub(super) fn entry_changes(&self, physical: u64, size: usize, value: u64, entry_bytes: usize) -> bool {
        let first = physical & !(entry_bytes as u64 - 1);
        let mut old = [0; 16];
        let span = (physical + size as u64).next_multiple_of(entry_bytes as u64) - first;
        self.memory.read(PhysAddr(first), &mut old[..span as usize]);
        let mut new = old;
        let at = (physical - first) as usize;
        new[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        let entries = |bytes| <[u8]>::chunks_exact(bytes, entry_bytes);
        entries(&old).zip(entries(&new)).any(|(old, new)| old[0] & 1 != 0 && old != new)
    }
}

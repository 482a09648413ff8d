//! MOVS, STOS, LODS, CMPS, SCAS, INS, OUTS, with and without REP.
//!
//! A repeated instruction is done in stretches that end where a pointer leaves its page; each stretch counts
//! as one instruction and the next begins as a new one, so interrupts and budgets come in between, at places
//! that depend on the addresses alone. A fault can only come at the start of a stretch, with the registers
//! telling how far it got and the flags as they were before the instruction, whose end alone sets them. The
//! log gets one access a stretch and direction. Where the iterations are asked for
//! ([`crate::StopSet::iterations`]), a stretch is one of them, and the run ends after it.

use super::exec::Exec;
use super::flags::{self, mask};
use super::mmu::Intent;
use super::state::{Seg, reg};
use super::trap::Outcome;
use crate::stop::Stop;
use iced_x86::{Instruction, Mnemonic, OpKind};
use trace::AccessKind;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Move,
    Store,
    Load,
    Compare,
    Scan,
    In,
    Out,
}

fn kind_of(instr: &Instruction) -> Kind {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Movsb | M::Movsw | M::Movsd | M::Movsq => Kind::Move,
        M::Stosb | M::Stosw | M::Stosd | M::Stosq => Kind::Store,
        M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => Kind::Load,
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => Kind::Compare,
        M::Scasb | M::Scasw | M::Scasd | M::Scasq => Kind::Scan,
        M::Insb | M::Insw | M::Insd => Kind::In,
        _ => Kind::Out,
    }
}

/// One pointer of a string instruction.
#[derive(Clone, Copy)]
struct Pointer {
    seg: Seg,
    index: usize,
}

/// A row of elements and how to go through it.
#[derive(Clone, Copy)]
struct Row {
    size: usize,
    down: bool,
    address_mask: u64,
}

impl Row {
    fn offset(self, start: u64, i: u64) -> u64 {
        let distance = i * self.size as u64;
        (if self.down { start.wrapping_sub(distance) } else { start.wrapping_add(distance) })
            & self.address_mask
    }

    /// The lowest offset of `n` elements from `start`.
    fn lowest(self, start: u64, n: u64) -> u64 {
        if self.down { self.offset(start, n - 1) } else { start }
    }

    /// Elements from `start` on that stay in its page and do not wrap.
    fn in_page(self, base: u64, start: u64) -> u64 {
        let size = self.size as u64;
        let linear = base.wrapping_add(start) & 0xfff;
        if linear + size > 0x1000 || start.checked_add(size - 1).is_none_or(|last| last > self.address_mask) {
            return 0;
        }
        if self.down {
            (linear / size).min(start / size) + 1
        } else {
            ((0x1000 - linear) / size).min((self.address_mask - start).saturating_add(1) / size)
        }
    }
}

/// Executes any string instruction.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let kind = kind_of(instr);
    let mut source = None;
    let mut target = None;
    let mut address_size = 4;
    let size = |k: OpKind| match k {
        OpKind::MemorySegSI | OpKind::MemoryESDI => 2,
        OpKind::MemorySegRSI | OpKind::MemoryESRDI => 8,
        _ => 4,
    };
    for i in 0..instr.op_count() {
        match instr.op_kind(i) {
            k @ (OpKind::MemorySegSI | OpKind::MemorySegESI | OpKind::MemorySegRSI) => {
                source = Some(Pointer { seg: x.string_segment(instr), index: reg::SI });
                address_size = size(k);
            }
            k @ (OpKind::MemoryESDI | OpKind::MemoryESEDI | OpKind::MemoryESRDI) => {
                target = Some(Pointer { seg: Seg::Es, index: reg::DI });
                address_size = size(k);
            }
            _ => {}
        }
    }
    let row = Row {
        size: instr.memory_size().size(),
        down: x.cpu.flags.has(flags::DF),
        address_mask: mask(address_size),
    };
    let repeated = instr.has_rep_prefix() || instr.has_repne_prefix();
    let count = if repeated { x.get_sized(reg::CX, address_size) } else { 1 };
    let port = x.cpu.regs[reg::DX] as u16;
    if matches!(kind, Kind::In | Kind::Out) {
        x.check_port(port, row.size)?;
    }
    if count == 0 {
        return Ok(());
    }
    // Single-stepping stops after every element.
    let mut n = if x.cpu.flags.has(flags::TF) { 1 } else { count };
    for pointer in [source, target].into_iter().flatten() {
        n = n.min(row.in_page(x.segment_base(pointer.seg), x.get_sized(pointer.index, address_size)));
    }
    let apart = repeated && !x.stops.iterations.is_empty() && x.stops.iterations.contains(&x.pc());
    n = if apart { n.min(1) } else { n };
    // An element across pages, or a stretch that does not fit its segment, goes one by one.
    let straddles = n == 0;
    let n = if straddles || stretch(x, row, source, target, kind, n, address_size).is_err() { 1 } else { n };
    let flags = x.cpu.flags;
    let done = match elements(x, instr, row, source, target, kind, n, address_size, port, straddles)? {
        Some(early) => early,
        None => n,
    };
    for pointer in [source, target].into_iter().flatten() {
        let at = x.get_sized(pointer.index, address_size);
        x.set_sized(pointer.index, address_size, row.offset(at, done));
    }
    if repeated {
        x.set_sized(reg::CX, address_size, count - done);
        let ended = matches!(kind, Kind::Compare | Kind::Scan) && x.cpu.flags.zf() != instr.has_repe_prefix();
        if count != done && !ended {
            x.next = x.cpu.rip;
            x.repeating = true;
            x.cpu.flags = flags;
            if apart && x.stop.is_none() {
                x.stop = Some(Stop::Iteration);
                x.leave = true;
            }
        }
    }
    Ok(())
}

/// Checks a whole stretch against its segments.
fn stretch(
    x: &mut Exec,
    row: Row,
    source: Option<Pointer>,
    target: Option<Pointer>,
    kind: Kind,
    n: u64,
    address_size: usize,
) -> Outcome<()> {
    for (pointer, write) in [(source, false), (target, matches!(kind, Kind::Move | Kind::Store | Kind::In))] {
        if let Some(p) = pointer {
            let low = row.lowest(x.get_sized(p.index, address_size), n);
            x.linear(p.seg, low, n as usize * row.size, write)?;
        }
    }
    Ok(())
}

/// Does `n` elements, all in one page a pointer if `n > 1`. Gives how many were done if a comparison ended
/// it.
#[allow(clippy::too_many_arguments)]
fn elements(
    x: &mut Exec,
    instr: &Instruction,
    row: Row,
    source: Option<Pointer>,
    target: Option<Pointer>,
    kind: Kind,
    n: u64,
    address_size: usize,
    port: u16,
    straddles: bool,
) -> Outcome<Option<u64>> {
    let (size, user) = (row.size, x.cpu.cpl() == 3);
    let writes = matches!(kind, Kind::Move | Kind::Store | Kind::In);
    let bytes = n as usize * size;
    let locate = |x: &Exec, p: Option<Pointer>, write: bool| -> Outcome<(u64, u64)> {
        let Some(p) = p else { return Ok((0, 0)) };
        let start = x.get_sized(p.index, address_size);
        let low = x.linear(p.seg, row.lowest(start, n), bytes, write)?;
        let first = x.segment_base(p.seg).wrapping_add(start) & x.linear_mask();
        Ok((first, low))
    };
    let (from, from_low) = locate(x, source, false)?;
    let (to, to_low) = locate(x, target, writes)?;
    // A stretch lies in one page, so its first element speaks for all.
    if source.is_some() {
        x.check_alignment(from, size)?;
        x.before(from_low, bytes, Intent::Read, user)?;
        x.probe_linear(from, size, Intent::Read, user)?;
    }
    if target.is_some() {
        let intent = if writes { Intent::Write } else { Intent::Read };
        x.check_alignment(to, size)?;
        x.before(to_low, bytes, intent, user)?;
        x.probe_linear(to, size, intent, user)?;
    }
    let linear_mask = x.linear_mask();
    let at = |start: u64, i: u64| {
        let distance = i * size as u64;
        (if row.down { start.wrapping_sub(distance) } else { start.wrapping_add(distance) }) & linear_mask
    };
    let mut done = n;
    let mut ended = None;
    let quick = !row.down
        && !straddles
        && match kind {
            Kind::Move => x.engine.mmu.copy_cached(to, from, bytes, user),
            Kind::Store => x.engine.mmu.fill_cached(to, bytes, x.cpu.regs[reg::AX], size, user),
            _ => false,
        };
    for i in 0..if quick { 0 } else { n } {
        match kind {
            Kind::Move => {
                let value = x.load_linear(at(from, i), size, user)?;
                x.store_linear(at(to, i), size, value, user)?;
            }
            Kind::Store => x.store_linear(at(to, i), size, x.get_sized(reg::AX, size), user)?,
            Kind::Load => {
                let value = x.load_linear(at(from, i), size, user)?;
                x.set_sized(reg::AX, size, value);
            }
            Kind::Compare | Kind::Scan => {
                let b = x.load_linear(at(to, i), size, user)?;
                let a = if kind == Kind::Scan {
                    x.get_sized(reg::AX, size)
                } else {
                    x.load_linear(at(from, i), size, user)?
                };
                x.cpu.flags.sub(a, b, false, size);
                let go_on = if instr.has_repne_prefix() { !x.cpu.flags.zf() } else { x.cpu.flags.zf() };
                if !go_on && i + 1 < n {
                    done = i + 1;
                    ended = Some(done);
                    break;
                }
            }
            Kind::In => {
                let value = x.port_in(port, size);
                x.store_linear(at(to, i), size, value.into(), user)?;
            }
            Kind::Out => {
                let value = x.load_linear(at(from, i), size, user)?;
                x.port_out(port, size, value as u32);
            }
        }
    }
    let span = done as usize * size;
    let low = |first: u64, low: u64| if row.down { at(first, done - 1) } else { low };
    if source.is_some() {
        x.record(low(from, from_low), span, AccessKind::Read);
    }
    if target.is_some() {
        x.record(low(to, to_low), span, if writes { AccessKind::Write } else { AccessKind::Read });
    }
    Ok(ended)
}

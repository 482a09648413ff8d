//! CPUID and the hypercall leaf.
//!
//! The processor announces what is modelled and no more, so that a kernel takes no path that is not.

use super::exec::Exec;
use super::state::{cr4, reg};
use super::trap::Outcome;
use crate::stop::{Kinds, Stop};

/// Family 6, model 8, stepping 6: a Pentium III, plus SSE2.
pub const SIGNATURE: u32 = 0x686;

/// EAX of a CPUID that is a call to us ("ROCK"). Works in every ring; elsewhere it does nothing harmful.
pub const HYPERCALL_LEAF: u32 = 0x524f_434b;

const FPU: u32 = 1;
const PSE: u32 = 1 << 3;
const TSC: u32 = 1 << 4;
const MSR: u32 = 1 << 5;
const CX8: u32 = 1 << 8;
const APIC: u32 = 1 << 9;
const SEP: u32 = 1 << 11;
const PGE: u32 = 1 << 13;
const CMOV: u32 = 1 << 15;
const CLFSH: u32 = 1 << 19;
const MMX: u32 = 1 << 23;
const FXSR: u32 = 1 << 24;
const SSE: u32 = 1 << 25;
const SSE2: u32 = 1 << 26;

/// Cache line that CLFLUSH flushes, in units of eight bytes, as leaf 1 has it.
const FLUSH_LINE: u32 = 8 << 8;

/// CR4 bits that may be set.
pub(crate) const CR4_ALLOWED: u64 =
    cr4::TSD | cr4::DE | cr4::PSE | cr4::PGE | cr4::PCE | cr4::OSFXSR | cr4::OSXMMEXCPT;

/// CPUID.
pub fn execute(x: &mut Exec) -> Outcome<()> {
    let leaf = x.cpu.regs[reg::AX] as u32;
    if leaf == HYPERCALL_LEAF {
        if x.stops.on.has(Kinds::HYPERCALL) {
            x.stop_after(Stop::Hypercall);
        }
        return Ok(());
    }
    let text = |s: &[u8; 4]| u32::from_le_bytes(*s);
    let apic = if x.cpu.msrs.apic_base & 0x800 != 0 { APIC } else { 0 };
    let features = FPU | PSE | TSC | MSR | CX8 | apic | SEP | PGE | CMOV | CLFSH | MMX | FXSR | SSE | SSE2;
    let [a, b, c, d] = match leaf {
        0x8000_0000.. => [0; 4],
        0 => [1, text(b"Genu"), text(b"ntel"), text(b"ineI")],
        // Above the highest leaf Intel processors answer as for the highest.
        _ => [SIGNATURE, u32::from(x.board.lapic_id(x.id)) << 24 | FLUSH_LINE, 0, features],
    };
    for (index, value) in [(reg::AX, a), (reg::BX, b), (reg::CX, c), (reg::DX, d)] {
        x.set_sized(index, 4, value.into());
    }
    Ok(())
}

//! CPUID and the hypercall leaf.
//!
//! The processor announces what is modelled and no more, so that a kernel takes no path that is not. It calls
//! itself an early Intel Atom: the one family with long mode that never executed ahead of time, so that
//! kernels need no defences against what such execution gave away; and one under a hypervisor, so that they
//! leave its microcode alone.

use super::exec::Exec;
use super::paging::PHYSICAL_BITS;
use super::state::{cr4, reg};
use super::trap::Outcome;
use crate::devices::clock::LAPIC_HZ;
use crate::stop::{Kinds, Stop};

/// Family 6, model 0x1c, stepping 10.
pub const SIGNATURE: u32 = 0x106ca;

/// EAX of a CPUID that is a call to us ("ROCK"). Works in every ring; elsewhere it does nothing harmful.
pub const HYPERCALL_LEAF: u32 = 0x524f_434b;

const FPU: u32 = 1;
const PSE: u32 = 1 << 3;
const TSC: u32 = 1 << 4;
const MSR: u32 = 1 << 5;
const PAE: u32 = 1 << 6;
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

// Leaf 1, ECX.
const CX16: u32 = 1 << 13;
const HYPERVISOR: u32 = 1 << 31;

// Leaf 8000_0001, ECX and EDX.
const LAHF_LONG: u32 = 1;
const SYSCALL: u32 = 1 << 11;
const NO_EXECUTE: u32 = 1 << 20;
const PAGES_1_GIB: u32 = 1 << 26;
const LONG_MODE: u32 = 1 << 29;

/// Leaf 6, EAX: the local APIC's timer always runs.
const ALWAYS_RUNNING_TIMER: u32 = 1 << 2;

/// Leaf 8000_0007, EDX: the time-stamp counter never stops or changes its pace.
const INVARIANT_TSC: u32 = 1 << 8;

/// Leaf 7, EBX: restricted transactional memory.
const RTM: u32 = 1 << 11;

/// Cache line that CLFLUSH flushes, in units of eight bytes, as leaf 1 has it.
const FLUSH_LINE: u32 = 8 << 8;

/// Bits of a linear address.
const LINEAR_BITS: u32 = 48;

/// Highest leaves of the basic and of the extended range.
const BASIC_MAX: u32 = 0x16;
const EXTENDED_MAX: u32 = 0x8000_0008;

/// CR4 bits that may be set.
pub(crate) const CR4_ALLOWED: u64 =
    cr4::TSD | cr4::DE | cr4::PSE | cr4::PAE | cr4::PGE | cr4::PCE | cr4::OSFXSR | cr4::OSXMMEXCPT;

/// CPUID.
pub fn execute(x: &mut Exec) -> Outcome<()> {
    let leaf = x.cpu.regs[reg::AX] as u32;
    if leaf == HYPERCALL_LEAF {
        if x.stops.on.has(Kinds::HYPERCALL) {
            x.stop_after(Stop::Hypercall);
        }
        return Ok(());
    }
    for (index, value) in [reg::AX, reg::BX, reg::CX, reg::DX].into_iter().zip(answer(x, leaf)) {
        x.set_sized(index, 4, value.into());
    }
    Ok(())
}

/// EAX, EBX, ECX and EDX.
fn answer(x: &Exec, leaf: u32) -> [u32; 4] {
    let text = |s: &[u8], at: usize| {
        let mut word = [0; 4];
        let rest = s.get(at..).unwrap_or_default();
        let n = rest.len().min(4);
        word[..n].copy_from_slice(&rest[..n]);
        u32::from_le_bytes(word)
    };
    let apic = if x.cpu.msrs.apic_base & 0x800 != 0 { APIC } else { 0 };
    match leaf {
        0 => [BASIC_MAX, text(b"Genu", 0), text(b"ntel", 0), text(b"ineI", 0)],
        1 => {
            let features =
                FPU | PSE | TSC | MSR | PAE | CX8 | apic | SEP | PGE | CMOV | CLFSH | MMX | FXSR | SSE | SSE2;
            let id = u32::from(x.board.lapic_id(x.id)) << 24;
            [SIGNATURE, id | FLUSH_LINE, CX16 | HYPERVISOR, features]
        }
        // Who the hypervisor is: nobody that guests know.
        0x4000_0000 => [leaf, text(b"Rock", 0), text(b"fall", 0), 0],
        0x8000_0000 => [EXTENDED_MAX, 0, 0, 0],
        0x8000_0001 => [0, 0, LAHF_LONG, SYSCALL | NO_EXECUTE | PAGES_1_GIB | LONG_MODE],
        0x8000_0002..=0x8000_0004 => {
            let at = 16 * (leaf - 0x8000_0002) as usize;
            std::array::from_fn(|i| text(b"Rockfall deterministic processor", at + 4 * i))
        }
        0x8000_0005 => [0; 4],
        // The second cache: 2 MiB, eight ways, lines of 64 bytes.
        0x8000_0006 => [0, 0, 2048 << 16 | 6 << 12 | 64, 0],
        0x8000_0007 => [0, 0, 0, INVARIANT_TSC],
        0x8000_0008 => [PHYSICAL_BITS | LINEAR_BITS << 8, 0, 0, 0],
        _ if leaf > EXTENDED_MAX => [0; 4],
        // Caches of 32 KiB, 32 KiB and 2 MiB.
        2 => [0x005b_5001, 0, 0, 0x007d_302c],
        6 => [ALWAYS_RUNNING_TIMER, 0, 0, 0],
        7 if x.cpu.regs[reg::CX] as u32 == 0 && x.transactions.tsx.is_some() => [0, RTM, 0, 0],
        3..0x15 => [0; 4],
        // How the time-stamp counter relates to the clock of the local APIC's timer, and how fast that is.
        0x15 => {
            let (numerator, denominator) = reduced(x.board.clock().instructions_per_second, LAPIC_HZ);
            [denominator, numerator, LAPIC_HZ as u32, 0]
        }
        // The processor's frequency. Above the highest leaf Intel processors answer as for the highest.
        _ => {
            let megahertz = (x.board.clock().instructions_per_second / 1_000_000) as u32;
            [megahertz, megahertz, megahertz, 0]
        }
    }
}

/// A fraction in lowest terms, as kernels multiply with it in 32 bits.
fn reduced(numerator: u64, denominator: u64) -> (u32, u32) {
    let (mut a, mut b) = (numerator, denominator);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let part = |n: u64| u32::try_from(n / a.max(1)).unwrap_or(u32::MAX);
    (part(numerator), part(denominator))
}

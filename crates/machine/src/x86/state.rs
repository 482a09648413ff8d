//! The architectural state of one processor, as plain data.
//!
//! Registers are 64 bits wide from the start; 32-bit and 16-bit code use their low parts. Segments keep the
//! descriptor they were loaded with, as the hardware does, so real mode with big segments works.

use super::flags::Flags;
use crate::hash::StableHasher;
use serde::{Deserialize, Serialize};
use std::hash::Hash;

/// Indices into [`Cpu::regs`].
pub mod reg {
    #![allow(missing_docs)]
    pub const AX: usize = 0;
    pub const CX: usize = 1;
    pub const DX: usize = 2;
    pub const BX: usize = 3;
    pub const SP: usize = 4;
    pub const BP: usize = 5;
    pub const SI: usize = 6;
    pub const DI: usize = 7;
}

/// A segment register, by its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Seg {
    Es,
    Cs,
    Ss,
    Ds,
    Fs,
    Gs,
}

/// A segment register with its hidden part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Segment {
    /// The visible selector.
    pub selector: u16,
    /// Bits 40–47 and 52–55 of the descriptor at bits 0–7 and 12–15: type, S, DPL, P; AVL, L, D/B, G.
    /// Zero: a null selector was loaded, nothing can be accessed.
    pub attributes: u16,
    /// Last valid offset, granularity applied.
    pub limit: u32,
    /// Linear address of offset 0.
    pub base: u64,
}

impl Segment {
    /// Accessed.
    pub const ACCESSED: u16 = 1;
    /// Code: readable. Data: writable.
    pub const READ_WRITE: u16 = 2;
    /// Code: conforming. Data: expands down.
    pub const CONFORMING: u16 = 4;
    /// Code, not data.
    pub const CODE: u16 = 8;
    /// Code or data, not a system descriptor.
    pub const ORDINARY: u16 = 0x10;
    /// Present.
    pub const PRESENT: u16 = 0x80;
    /// 64-bit code.
    pub const LONG: u16 = 0x2000;
    /// 32-bit code or stack.
    pub const BIG: u16 = 0x4000;
    /// The limit counts pages.
    pub const GRANULAR: u16 = 0x8000;

    /// As real mode loads it, with the limit of power-up.
    #[must_use]
    pub const fn real(selector: u16) -> Self {
        Self { selector, base: (selector as u64) << 4, limit: 0xffff, attributes: 0x93 }
    }

    /// A flat 4 GiB, 32-bit segment: code or data, of ring `dpl`.
    #[must_use]
    pub const fn flat(selector: u16, code: bool, dpl: u16) -> Self {
        let kind = if code { 0x9b } else { 0x93 };
        Self { selector, base: 0, limit: u32::MAX, attributes: 0xc000 | kind | dpl << 5 }
    }

    /// A 64-bit code segment of ring `dpl`.
    #[must_use]
    pub const fn long(selector: u16, dpl: u16) -> Self {
        Self { selector, base: 0, limit: u32::MAX, attributes: 0xa09b | dpl << 5 }
    }

    /// What a null selector leaves in SS in 64-bit mode: nothing but the privilege level.
    #[must_use]
    pub const fn null_stack(selector: u16, cpl: u8) -> Self {
        Self { selector, base: 0, limit: 0, attributes: (cpl as u16) << 5 }
    }

    /// From the eight bytes of a code, data or system descriptor.
    #[must_use]
    pub const fn from_descriptor(selector: u16, descriptor: u64) -> Self {
        let attributes = (descriptor >> 40) as u16 & 0xf0ff;
        let limit = (descriptor & 0xffff | descriptor >> 32 & 0xf_0000) as u32;
        let limit = if attributes & Self::GRANULAR != 0 { limit << 12 | 0xfff } else { limit };
        let base = descriptor >> 16 & 0xff_ffff | descriptor >> 32 & 0xff00_0000;
        Self { selector, base, limit, attributes }
    }

    /// Descriptor privilege level.
    #[must_use]
    pub const fn dpl(&self) -> u8 {
        (self.attributes >> 5 & 3) as u8
    }

    /// Can it be used at all?
    #[must_use]
    pub const fn usable(&self) -> bool {
        self.attributes & Self::PRESENT != 0
    }

    /// Bit of `attributes` set.
    #[must_use]
    pub const fn has(&self, bits: u16) -> bool {
        self.attributes & bits == bits
    }

    /// Type field with the S bit: 0–15 system, 16–31 code and data.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        (self.attributes & 0x1f) as u8
    }
}

/// GDTR or IDTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Table {
    /// Linear address.
    pub base: u64,
    /// Last valid byte offset.
    pub limit: u16,
}

/// What the processor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Activity {
    /// Executing instructions.
    #[default]
    Running,
    /// In HLT, until an interrupt.
    Halted,
    /// After INIT, until a start-up message.
    WaitForSipi,
    /// After a triple fault.
    Shutdown,
}

/// Model-specific registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Msrs {
    pub apic_base: u64,
    pub sysenter_cs: u64,
    pub sysenter_esp: u64,
    pub sysenter_eip: u64,
    pub pat: u64,
    /// What is added to instruction time to give the time-stamp counter.
    pub tsc_offset: u64,
    pub mtrr_default: u64,
    pub mtrr_fixed: [u64; 11],
    pub mtrr_variable: [u64; 16],
    pub misc_enable: u64,
    pub star: u64,
    pub lstar: u64,
    pub cstar: u64,
    pub sfmask: u64,
    pub kernel_gs_base: u64,
}

/// An 80-bit extended real as its two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct F80 {
    /// Significand with its explicit integer bit.
    pub mantissa: u64,
    /// Sign in bit 15, biased exponent below.
    pub sign_exponent: u16,
}

/// x87 and SSE state, in the terms of FXSAVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fpu {
    /// Physical registers R0–R7; ST(i) is `st[(top + i) % 8]`, top in `status`.
    pub st: [F80; 8],
    /// FCW.
    pub control: u16,
    /// FSW, with TOP in bits 11–13.
    pub status: u16,
    /// Abridged tag word: bit i set if physical register i is not empty.
    pub tags: u8,
    /// Last opcode.
    pub opcode: u16,
    /// Selector of the last instruction.
    pub instruction_selector: u16,
    /// Offset of the last instruction.
    pub instruction_pointer: u64,
    /// Selector of the last memory operand.
    pub data_selector: u16,
    /// Offset of the last memory operand.
    pub data_pointer: u64,
    /// SSE control and status.
    pub mxcsr: u32,
    /// SSE registers.
    pub xmm: [u128; 16],
}

impl Default for Fpu {
    /// After power-up: as FNINIT, but with registers of +0, which real chips have.
    fn default() -> Self {
        Self {
            st: [F80::default(); 8],
            control: 0x37f,
            status: 0,
            tags: 0,
            opcode: 0,
            instruction_selector: 0,
            instruction_pointer: 0,
            data_selector: 0,
            data_pointer: 0,
            mxcsr: 0x1f80,
            xmm: [0; 16],
        }
    }
}

/// CR0 bits.
pub mod cr0 {
    #![allow(missing_docs)]
    pub const PE: u64 = 1;
    pub const MP: u64 = 1 << 1;
    pub const EM: u64 = 1 << 2;
    pub const TS: u64 = 1 << 3;
    pub const ET: u64 = 1 << 4;
    pub const NE: u64 = 1 << 5;
    pub const WP: u64 = 1 << 16;
    pub const AM: u64 = 1 << 18;
    pub const NW: u64 = 1 << 29;
    pub const CD: u64 = 1 << 30;
    pub const PG: u64 = 1 << 31;
}

/// CR4 bits.
pub mod cr4 {
    #![allow(missing_docs)]
    pub const VME: u64 = 1;
    pub const PVI: u64 = 1 << 1;
    pub const TSD: u64 = 1 << 2;
    pub const DE: u64 = 1 << 3;
    pub const PSE: u64 = 1 << 4;
    pub const PAE: u64 = 1 << 5;
    pub const MCE: u64 = 1 << 6;
    pub const PGE: u64 = 1 << 7;
    pub const PCE: u64 = 1 << 8;
    pub const OSFXSR: u64 = 1 << 9;
    pub const OSXMMEXCPT: u64 = 1 << 10;
}

/// Bits of the extended-feature register.
pub mod efer {
    #![allow(missing_docs)]
    /// SYSCALL and SYSRET.
    pub const SCE: u64 = 1;
    /// Long mode wanted.
    pub const LME: u64 = 1 << 8;
    /// Long mode active: LME was set when paging was switched on.
    pub const LMA: u64 = 1 << 10;
    /// No-execute pages.
    pub const NXE: u64 = 1 << 11;
}

/// Are the upper bits of a 64-bit address copies of bit 47?
#[inline]
#[must_use]
pub const fn canonical(address: u64) -> bool {
    (address << 16) as i64 >> 16 == address as i64
}

/// Branches remembered for crash messages.
pub const LAST_BRANCHES: usize = 16;

/// One processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Cpu {
    pub regs: [u64; 16],
    pub rip: u64,
    pub flags: Flags,
    /// By [`Seg`].
    pub segments: [Segment; 6],
    pub gdtr: Table,
    pub idtr: Table,
    pub ldtr: Segment,
    pub tr: Segment,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub cr8: u64,
    pub efer: u64,
    pub dr: [u64; 8],
    pub msrs: Msrs,
    pub fpu: Fpu,
    pub activity: Activity,
    /// Instructions this processor has started.
    pub executed: u64,
    /// No interrupt is taken while `executed` has this value: the instruction after STI or a load of SS.
    pub shadow_at: u64,
    /// A non-maskable interrupt waits.
    pub nmi_pending: bool,
    /// In an NMI handler, until IRET.
    pub nmi_blocked: bool,
    /// A single-step trap is due before the next instruction (TF was set when the last one began).
    pub trap_pending: bool,
}

impl Cpu {
    /// Do all registers hold the same, however many instructions were executed in between?
    #[must_use]
    pub fn same_registers(&self, other: &Self) -> bool {
        // How flags are kept depends on where runs ended.
        let Self { executed, shadow_at, flags, .. } = other.clone();
        self.flags.image() == flags.image() && Self { executed, shadow_at, flags, ..self.clone() } == *other
    }

    /// After power-up or INIT: real mode at F000:FFF0.
    #[must_use]
    pub fn reset(bootstrap: bool) -> Self {
        let mut code = Segment::real(0xf000);
        code.base = 0xffff_0000;
        code.attributes = 0x9b;
        let mut segments = [Segment::real(0); 6];
        segments[Seg::Cs as usize] = code;
        let system = |kind| Segment { selector: 0, base: 0, limit: 0xffff, attributes: kind };
        let mut regs = [0; 16];
        regs[reg::DX] = super::cpuid::SIGNATURE.into();
        Self {
            regs,
            rip: 0xfff0,
            flags: Flags::default(),
            segments,
            gdtr: Table { base: 0, limit: 0xffff },
            idtr: Table { base: 0, limit: 0xffff },
            ldtr: system(0x82),
            tr: system(0x8b),
            cr0: cr0::CD | cr0::NW | cr0::ET,
            cr2: 0,
            cr3: 0,
            cr4: 0,
            cr8: 0,
            efer: 0,
            dr: [0, 0, 0, 0, 0, 0, 0xffff_0ff0, 0x400],
            msrs: Msrs {
                apic_base: 0xfee0_0800 | if bootstrap { 0x100 } else { 0 },
                sysenter_cs: 0,
                sysenter_esp: 0,
                sysenter_eip: 0,
                pat: 0x0007_0406_0007_0406,
                tsc_offset: 0,
                mtrr_default: 0,
                mtrr_fixed: [0; 11],
                mtrr_variable: [0; 16],
                misc_enable: 1,
                star: 0,
                lstar: 0,
                cstar: 0,
                sfmask: 0,
                kernel_gs_base: 0,
            },
            fpu: Fpu::default(),
            activity: if bootstrap { Activity::Running } else { Activity::WaitForSipi },
            executed: 0,
            shadow_at: u64::MAX,
            nmi_pending: false,
            nmi_blocked: false,
            trap_pending: false,
        }
    }

    /// The segment register.
    #[inline]
    #[must_use]
    pub fn seg(&self, seg: Seg) -> &Segment {
        &self.segments[seg as usize]
    }

    /// Current privilege level.
    #[inline]
    #[must_use]
    pub fn cpl(&self) -> u8 {
        if self.cr0 & cr0::PE == 0 { 0 } else { self.segments[Seg::Ss as usize].dpl() }
    }

    /// In protected mode?
    #[inline]
    #[must_use]
    pub fn protected(&self) -> bool {
        self.cr0 & cr0::PE != 0
    }

    /// In long mode, with 64-bit code or in its compatibility mode?
    #[inline]
    #[must_use]
    pub fn long(&self) -> bool {
        self.efer & efer::LMA != 0
    }

    /// Executing 64-bit code?
    #[inline]
    #[must_use]
    pub fn long_code(&self) -> bool {
        self.long() && self.segments[Seg::Cs as usize].has(Segment::LONG)
    }

    /// 16, 32 or 64: the default size of the code segment.
    #[must_use]
    pub fn bitness(&self) -> u32 {
        if self.long_code() {
            64
        } else if self.segments[Seg::Cs as usize].has(Segment::BIG) {
            32
        } else {
            16
        }
    }

    /// Words that compiled code logs for an instruction at most: two accesses, at addresses of 32 or 64 bits.
    pub(crate) fn log_words(&self) -> usize {
        if self.long_code() { 4 } else { 2 }
    }

    /// Linear address of an offset in the code segment.
    #[must_use]
    pub fn code_address(&self, offset: u64) -> u64 {
        if self.long_code() {
            offset
        } else {
            self.segments[Seg::Cs as usize].base.wrapping_add(offset) & 0xffff_ffff
        }
    }

    /// The offset in the code segment that has this linear address.
    #[must_use]
    pub fn code_offset(&self, linear: u64) -> u64 {
        if self.long_code() {
            linear
        } else {
            linear.wrapping_sub(self.segments[Seg::Cs as usize].base) & 0xffff_ffff
        }
    }

    /// Linear address of the next instruction.
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.code_address(self.rip)
    }

    /// Could a maskable interrupt be taken before the next instruction?
    #[must_use]
    pub fn interruptible(&self) -> bool {
        self.flags.has(super::flags::IF)
            && self.shadow_at != self.executed
            && matches!(self.activity, Activity::Running | Activity::Halted)
    }

    pub(crate) fn hash_into(&self, h: &mut StableHasher) {
        (self.regs, self.rip, self.flags.image(), self.segments, self.gdtr, self.idtr).hash(h);
        (self.ldtr, self.tr, self.cr0, self.cr2, self.cr3, self.cr4, self.cr8, self.efer).hash(h);
        (self.dr, self.msrs, self.fpu, self.activity, self.shadow_at == self.executed).hash(h);
        (self.nmi_pending, self.nmi_blocked, self.trap_pending).hash(h);
    }
}

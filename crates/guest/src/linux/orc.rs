//! ORC: the table by which the kernel finds the caller of any of its instructions.
//!
//! Concept: for every range of code, where the stack pointer of the caller is (relative to a register) and
//! where its frame pointer was saved. It is complete for compiled code and for the kernel's assembly, unlike
//! frame pointers. Contract: total on damaged tables. One table is the kernel's own or that of a module;
//! addresses are stored relative to their own place, in ascending order. Source: the kernel's
//! Documentation/x86/orc-unwinder.rst and arch/x86/include/asm/orc_types.h of 6.1 and 6.12. Not modelled:
//! code that is made while the kernel runs (BPF, trampolines of tracing), which has no entry.

use std::sync::Arc;
use trace::VirtAddr;

/// A register that a rule counts from; `Indirect` ones are read from where they point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    Undefined,
    PreviousSp,
    Dx,
    Di,
    Bp,
    Sp,
    R10,
    R13,
    BpIndirect,
    SpIndirect,
}

/// What lies at the stack pointer that the rule gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing is known of this code.
    Undefined,
    /// Nobody called: the first function of a thread, or the entry from user space.
    End,
    /// The return address of a call is below it.
    Call,
    /// All registers of the interrupted code are there.
    Registers,
    /// What the processor itself saves at an interrupt is there.
    InterruptFrame,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    pub sp_offset: i16,
    pub bp_offset: i16,
    pub sp: Base,
    pub bp: Base,
    pub kind: Kind,
}

/// How an entry is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Two bits of type and one that ends the stack, up to 6.3.
    Old,
    /// Three bits of type, since 6.4.
    New,
}

const ENTRY_BYTES: usize = 6;

#[derive(Clone, Debug)]
pub struct Orc {
    layout: Layout,
    /// The address of the table of addresses itself in memory.
    at: u64,
    addresses: Arc<[u8]>,
    rules: Arc<[u8]>,
}

impl Orc {
    #[must_use]
    pub fn new(layout: Layout, at: VirtAddr, addresses: &[u8], rules: &[u8]) -> Self {
        Orc { layout, at: at.0, addresses: addresses.into(), rules: rules.into() }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        (self.addresses.len() / 4).min(self.rules.len() / ENTRY_BYTES)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn address(&self, index: usize) -> u64 {
        let bytes = self.addresses.get(4 * index..4 * index + 4);
        let distance = bytes.map_or(0, |bytes| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        self.at.wrapping_add(4 * index as u64).wrapping_add(i64::from(distance) as u64)
    }

    /// The rule for an instruction of the code that this table covers.
    #[must_use]
    pub fn rule(&self, pc: VirtAddr) -> Option<Rule> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle) <= pc.0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let at = ENTRY_BYTES * low.checked_sub(1)?;
        decode(self.layout, self.rules.get(at..at + ENTRY_BYTES)?)
    }
}

fn base(number: u8) -> Option<Base> {
    Some(match number {
        0 => Base::Undefined,
        1 => Base::PreviousSp,
        2 => Base::Dx,
        3 => Base::Di,
        4 => Base::Bp,
        5 => Base::Sp,
        6 => Base::R10,
        7 => Base::R13,
        8 => Base::BpIndirect,
        9 => Base::SpIndirect,
        _ => return None,
    })
}

fn decode(layout: Layout, bytes: &[u8]) -> Option<Rule> {
    let sp_offset = i16::from_le_bytes([bytes[0], bytes[1]]);
    let bp_offset = i16::from_le_bytes([bytes[2], bytes[3]]);
    let (sp, bp) = (base(bytes[4] & 15)?, base(bytes[4] >> 4)?);
    let kind = match layout {
        Layout::Old if sp == Base::Undefined && bytes[5] & 4 != 0 => Kind::End,
        Layout::Old if sp == Base::Undefined => Kind::Undefined,
        Layout::Old => match bytes[5] & 3 {
            0 => Kind::Call,
            1 => Kind::Registers,
            2 => Kind::InterruptFrame,
            _ => return None,
        },
        Layout::New => match bytes[5] & 7 {
            0 => Kind::Undefined,
            1 => Kind::End,
            2 => Kind::Call,
            3 => Kind::Registers,
            4 => Kind::InterruptFrame,
            _ => return None,
        },
    };
    Some(Rule { sp_offset, bp_offset, sp, bp, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts() {
        // sp+8 at a call, as at the entry of a function; the same in both but for the type's bits.
        let call = Rule { sp_offset: 8, bp_offset: 0, sp: Base::Sp, bp: Base::Undefined, kind: Kind::Call };
        assert_eq!(decode(Layout::Old, &[8, 0, 0, 0, 5, 0]), Some(call));
        assert_eq!(decode(Layout::New, &[8, 0, 0, 0, 5, 2]), Some(call));
        let registers = Rule { kind: Kind::Registers, sp_offset: 0, ..call };
        assert_eq!(decode(Layout::Old, &[0, 0, 0, 0, 5, 1]), Some(registers));
        assert_eq!(decode(Layout::New, &[0, 0, 0, 0, 5, 3 | 8]), Some(registers));
        assert_eq!(decode(Layout::Old, &[0, 0, 0, 0, 0, 4]).map(|rule| rule.kind), Some(Kind::End));
        assert_eq!(decode(Layout::New, &[0, 0, 0, 0, 0, 1]).map(|rule| rule.kind), Some(Kind::End));
        assert_eq!(decode(Layout::New, &[0, 0, 0, 0, 0x0f, 2]), None, "no such register");
    }

    #[test]
    fn the_nearest_entry_before() {
        let at = 0xffff_ffff_8200_0000u64;
        let starts = [0xffff_ffff_8100_0000u64, 0xffff_ffff_8100_0010];
        let distance = |(index, start): (usize, &u64)| {
            (start.wrapping_sub(at + 4 * index as u64) as i64 as i32).to_le_bytes()
        };
        let addresses: Vec<u8> = starts.iter().enumerate().flat_map(distance).collect();
        let rules = [8, 0, 0, 0, 5, 2, 16, 0, 0, 0, 5, 2];
        let orc = Orc::new(Layout::New, VirtAddr(at), &addresses, &rules);
        let offset = |pc: u64| orc.rule(VirtAddr(pc)).map(|rule| rule.sp_offset);
        assert_eq!(offset(starts[0] - 1), None);
        assert_eq!(offset(starts[0] + 15), Some(8));
        assert_eq!(offset(starts[1]), Some(16));
    }
}

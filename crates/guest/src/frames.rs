//! Call frame information: the table by which a debugger finds the caller of a frame.
//!
//! Contract: the entries of `.debug_frame` and `.eh_frame` are indexed once by address; a rule is computed when asked
//! for. Rules that need a DWARF expression are evaluated by [`crate::location`]. Source: DWARF 5, section 6.4.

use crate::state::Architecture;
use gimli::UnwindSection;
use std::sync::Arc;

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Where the canonical frame address of a function is: the value of the stack pointer before the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cfa {
    Register { register: u16, offset: i64 },
    Expression(Box<[u8]>),
}

/// How the caller's value of a register is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    Same,
    Undefined,
    /// Saved at this distance from the frame address.
    Offset(i64),
    /// Is this distance from the frame address.
    ValueOffset(i64),
    Register(u16),
    Saved(Box<[u8]>),
    Value(Box<[u8]>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRules {
    pub cfa: Cfa,
    pub registers: Vec<(u16, Rule)>,
    pub return_address: u16,
    /// The frame was made by an interrupt: its pc is not a return address.
    pub signal: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    start: u64,
    end: u64,
    offset: usize,
    eh: bool,
}

#[derive(Clone, Debug)]
pub struct CallFrames {
    word: u8,
    debug_frame: Arc<[u8]>,
    eh_frame: Arc<[u8]>,
    eh_address: u64,
    entries: Vec<Entry>,
}

impl CallFrames {
    pub(crate) fn new(
        architecture: Architecture,
        debug_frame: &[u8],
        eh_frame: &[u8],
        eh_address: u64,
    ) -> Result<Self, gimli::Error> {
        let mut frames = CallFrames {
            word: architecture.word() as u8,
            debug_frame: debug_frame.into(),
            eh_frame: eh_frame.into(),
            eh_address,
            entries: Vec::new(),
        };
        let mut entries = Vec::new();
        collect(&frames.debug_section(), &frames.bases(), false, &mut entries)?;
        collect(&frames.eh_section(), &frames.bases(), true, &mut entries)?;
        entries.retain(|entry| entry.start < entry.end);
        entries.sort_by_key(|entry| (entry.start, entry.eh));
        frames.entries = entries;
        Ok(frames)
    }

    fn bases(&self) -> gimli::BaseAddresses {
        gimli::BaseAddresses::default().set_eh_frame(self.eh_address)
    }

    fn debug_section(&self) -> gimli::DebugFrame<Slice<'_>> {
        let mut section = gimli::DebugFrame::new(&self.debug_frame, gimli::LittleEndian);
        section.set_address_size(self.word);
        section
    }

    fn eh_section(&self) -> gimli::EhFrame<Slice<'_>> {
        let mut section = gimli::EhFrame::new(&self.eh_frame, gimli::LittleEndian);
        section.set_address_size(self.word);
        section
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The rules at `pc`; `None` if no entry covers it.
    #[must_use]
    pub fn rules(&self, pc: u64) -> Option<FrameRules> {
        let last = self.entries.partition_point(|entry| entry.start <= pc);
        let entry = self.entries[..last].iter().rev().take(4).find(|entry| pc < entry.end)?;
        if entry.eh {
            let offset = gimli::EhFrameOffset(entry.offset);
            rules_from(&self.eh_section(), &self.bases(), offset, pc)
        } else {
            let offset = gimli::DebugFrameOffset(entry.offset);
            rules_from(&self.debug_section(), &self.bases(), offset, pc)
        }
    }
}

fn collect<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &gimli::BaseAddresses,
    eh: bool,
    out: &mut Vec<Entry>,
) -> Result<(), gimli::Error> {
    let mut entries = section.entries(bases);
    while let Some(entry) = entries.next()? {
        if let gimli::CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(S::cie_from_offset)?;
            out.push(Entry {
                start: fde.initial_address(),
                end: fde.initial_address().saturating_add(fde.len()),
                offset: fde.offset(),
                eh,
            });
        }
    }
    Ok(())
}

fn rules_from<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &gimli::BaseAddresses,
    offset: S::Offset,
    pc: u64,
) -> Option<FrameRules> {
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    let mut context = gimli::UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, pc).ok()?;
    let expression = |expression: &gimli::UnwindExpression<usize>| -> Option<Box<[u8]>> {
        Some(expression.get(section).ok()?.0.slice().into())
    };
    let cfa = match row.cfa() {
        gimli::CfaRule::RegisterAndOffset { register, offset } => {
            Cfa::Register { register: register.0, offset: *offset }
        }
        gimli::CfaRule::Expression(rule) => Cfa::Expression(expression(rule)?),
    };
    let mut registers = Vec::new();
    for (register, rule) in row.registers() {
        let rule = match rule {
            gimli::RegisterRule::Undefined => Rule::Undefined,
            gimli::RegisterRule::SameValue => Rule::Same,
            gimli::RegisterRule::Offset(offset) => Rule::Offset(*offset),
            gimli::RegisterRule::ValOffset(offset) => Rule::ValueOffset(*offset),
            gimli::RegisterRule::Register(other) => Rule::Register(other.0),
            gimli::RegisterRule::Expression(rule) => Rule::Saved(expression(rule)?),
            gimli::RegisterRule::ValExpression(rule) => Rule::Value(expression(rule)?),
            _ => continue,
        };
        registers.push((register.0, rule));
    }
    Some(FrameRules {
        cfa,
        registers,
        return_address: fde.cie().return_address_register().0,
        signal: fde.is_signal_trampoline(),
    })
}

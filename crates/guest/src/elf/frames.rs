//! Call frame information: the table by which a debugger finds the caller of a frame.
//!
//! Contract: the entries of `.debug_frame` and `.eh_frame` are indexed once by address; the rules of an entry
//! are computed when one of them is first asked for, and kept: points with filters ask thousands of times a
//! second. Rules that need a DWARF expression are evaluated by [`crate::elf::location`]. Source: DWARF 5,
//! section 6.4.

use crate::state::Architecture;
use gimli::UnwindSection;
use std::sync::{Arc, OnceLock};

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
    /// The register was saved at this distance from the frame address.
    Offset(i64),
    /// The value of the register is the frame address plus this distance.
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
    /// Whether the frame was made by an interrupt, so that its pc is not a return address.
    pub signal: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    start: u64,
    end: u64,
    offset: usize,
    eh: bool,
    rows: OnceLock<Box<[Row]>>,
}

/// The rules of a piece of a function.
#[derive(Clone, Debug)]
struct Row {
    start: u64,
    end: u64,
    rules: FrameRules,
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
    pub fn rules(&self, pc: u64) -> Option<&FrameRules> {
        let last = self.entries.partition_point(|entry| entry.start <= pc);
        let entry = self.entries[..last].iter().rev().take(4).find(|entry| pc < entry.end)?;
        let rows = entry.rows.get_or_init(|| {
            let rows = if entry.eh {
                rows(&self.eh_section(), &self.bases(), gimli::EhFrameOffset(entry.offset))
            } else {
                rows(&self.debug_section(), &self.bases(), gimli::DebugFrameOffset(entry.offset))
            };
            rows.into()
        });
        rows.iter().find(|row| (row.start..row.end).contains(&pc)).map(|row| &row.rules)
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
                rows: OnceLock::new(),
            });
        }
    }
    Ok(())
}

/// All rows of an entry, up to the first that cannot be read.
fn rows<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &gimli::BaseAddresses,
    offset: S::Offset,
) -> Vec<Row> {
    let mut found = Vec::new();
    let Ok(fde) = section.fde_from_offset(bases, offset, S::cie_from_offset) else { return found };
    let mut context = gimli::UnwindContext::new();
    let Ok(mut table) = fde.rows(section, bases, &mut context) else { return found };
    while let Ok(Some(row)) = table.next_row() {
        if let Some((cfa, registers)) = rules_of(section, row) {
            let return_address = fde.cie().return_address_register().0;
            let rules = FrameRules { cfa, registers, return_address, signal: fde.is_signal_trampoline() };
            found.push(Row { start: row.start_address(), end: row.end_address(), rules });
        }
    }
    found
}

fn rules_of<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    row: &gimli::UnwindTableRow<usize>,
) -> Option<(Cfa, Vec<(u16, Rule)>)> {
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
    Some((cfa, registers))
}

//! DWARF debugging information as plain data: functions with their inlined calls, parameters and locals,
//! source lines, types, global variables and enumerators.
//!
//! Contract: one pass over the file, everything owned, so the result is shared behind an `Arc` and never
//! borrows the file. Malformed input is an error, never a panic. Source: DWARF 5, read by `gimli`; versions 2
//! to 4 as well. Not read: split DWARF, compressed sections, macros (so `#define`d constants have no name
//! here).

mod lines;
mod type_entries;

pub use lines::{FileId, Lines, Row, SourceFile};

use crate::elf::types::{Type, TypeId, Types};
use gimli::{AttributeValue, DwAt, constants as dw};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// Where a parameter or local lives: a DWARF expression, per range of code.
#[derive(Clone, Debug, Default)]
pub struct Location(pub Vec<(Range<u64>, Box<[u8]>)>);

impl Location {
    /// The location of something that always has this value and lives nowhere.
    fn constant(value: i64) -> Self {
        let mut expression = vec![dw::DW_OP_const8s.0];
        expression.extend(value.to_le_bytes());
        expression.push(dw::DW_OP_stack_value.0);
        Self(vec![(0..u64::MAX, expression.into())])
    }

    #[must_use]
    pub fn at(&self, pc: u64) -> Option<&[u8]> {
        self.0.iter().find(|(range, _)| range.contains(&pc)).map(|(_, expression)| &**expression)
    }
}

#[derive(Clone, Debug)]
pub struct Local {
    pub name: Arc<str>,
    pub ty: TypeId,
    pub location: Location,
    /// The code in which the name means this variable: that of its block.
    pub scope: Vec<Range<u64>>,
}

/// A call that the compiler replaced by the body.
#[derive(Clone, Debug)]
pub struct Inlined {
    pub name: Option<Arc<str>>,
    pub ranges: Vec<Range<u64>>,
    pub entry: Option<u64>,
    pub call_file: Option<FileId>,
    pub call_line: Option<u32>,
    /// 1 for a call written in the function itself.
    pub depth: usize,
}

#[derive(Clone, Debug)]
pub struct Subprogram {
    pub name: Option<Arc<str>>,
    pub ranges: Vec<Range<u64>>,
    pub file: Option<FileId>,
    pub line: Option<u32>,
    pub returns: Option<TypeId>,
    pub parameters: Vec<Local>,
    pub variadic: bool,
    pub locals: Vec<Local>,
    pub frame_base: Location,
    pub inlined: Vec<Inlined>,
}

/// A variable with a fixed address.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: Arc<str>,
    pub ty: TypeId,
    pub address: u64,
    /// The function whose static local it is, if it is one.
    pub function: Option<Arc<str>>,
    pub file: Option<FileId>,
}

#[derive(Clone, Debug, Default)]
pub struct Dwarf {
    pub types: Types,
    pub subprograms: Vec<Subprogram>,
    pub variables: Vec<Variable>,
    pub enumerators: FxHashMap<Arc<str>, i64>,
    pub files: Vec<SourceFile>,
    pub lines: Lines,
    /// Whether most of the debugging information is in files of its own, beside the object files.
    pub split: bool,
}

/// Reads everything. `is_code` tells code of the program from that of discarded sections (which stays at
/// address 0).
pub(crate) fn load(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    word: usize,
    is_code: &dyn Fn(u64) -> bool,
) -> Result<Dwarf, gimli::Error> {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        headers.push(header);
    }
    let mut units = dwarf.type_units();
    while let Some(header) = units.next()? {
        headers.push(header);
    }
    let signature = |header: &gimli::UnitHeader<Slice<'_>>| match header.type_() {
        gimli::UnitType::Type { type_signature, type_offset } => {
            Some((type_signature.0, place(header, type_offset)?))
        }
        _ => None,
    };
    let mut loader = Loader {
        dwarf,
        is_code,
        out: Dwarf { types: Types::new(word), ..Dwarf::default() },
        signatures: headers.iter().filter_map(signature).collect(),
        type_at: FxHashMap::default(),
        named: FxHashMap::default(),
        file_at: FxHashMap::default(),
        pending_functions: Vec::new(),
        pending_inlined: Vec::new(),
        pending_locals: Vec::new(),
        pending_variables: Vec::new(),
    };
    for header in headers {
        loader.unit(&dwarf.unit(header)?)?;
    }
    loader.finish();
    Ok(loader.out)
}

/// What an abstract instance or a declaration tells about the concrete ones that refer to it.
#[derive(Clone, Default)]
struct Named {
    name: Option<Arc<str>>,
    origin: Option<usize>,
    file: Option<FileId>,
    line: Option<u32>,
    ty: Option<TypeId>,
}

enum Scope {
    Struct(TypeId),
    Enum(TypeId),
    Array(TypeId),
    /// `index` is that of the subprogram, if it has code; `entry` tells its name.
    Function {
        index: Option<usize>,
        entry: usize,
    },
    Inlined {
        function: usize,
        index: usize,
    },
    Block {
        ranges: Vec<Range<u64>>,
    },
    Other,
}

struct Loader<'a, 'd> {
    dwarf: &'d gimli::Dwarf<Slice<'a>>,
    is_code: &'d dyn Fn(u64) -> bool,
    out: Dwarf,
    /// The types that have units of their own.
    signatures: FxHashMap<u64, usize>,
    type_at: FxHashMap<usize, TypeId>,
    named: FxHashMap<usize, Named>,
    file_at: FxHashMap<(Arc<str>, Arc<str>), FileId>,
    /// Concrete things whose name is given elsewhere, perhaps further on.
    pending_functions: Vec<(usize, usize)>,
    pending_inlined: Vec<(usize, usize, usize)>,
    pending_locals: Vec<PendingLocal>,
    pending_variables: Vec<PendingVariable>,
}

struct PendingVariable {
    index: usize,
    origin: Option<usize>,
    /// The entry of the function it is in.
    function: Option<usize>,
}

struct PendingLocal {
    function: usize,
    parameter: bool,
    index: usize,
    origin: usize,
}

/// Origins chain (concrete, abstract, declaration); a longer chain than this is a cycle in a damaged file.
const ORIGINS_MAX: usize = 8;

impl<'a> Loader<'a, '_> {
    fn text(&self, unit: &gimli::Unit<Slice<'a>>, value: AttributeValue<Slice<'a>>) -> Option<Arc<str>> {
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(Arc::from(text.to_string_lossy()))
    }

    fn name(&self, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Option<Arc<str>> {
        self.text(unit, entry.attr_value(dw::DW_AT_name)?)
    }

    /// The [`place`] of the entry that an attribute refers to.
    fn reference(&self, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>, attribute: DwAt) -> Option<usize> {
        match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => place(&unit.header, offset),
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            AttributeValue::DebugTypesRef(signature) => self.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    fn type_id(&mut self, offset: usize) -> TypeId {
        let types = &mut self.out.types;
        *self.type_at.entry(offset).or_insert_with(|| types.add(Type::Void))
    }

    fn type_of(&mut self, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> TypeId {
        match self.reference(unit, entry, dw::DW_AT_type) {
            Some(offset) => self.type_id(offset),
            None => TypeId::VOID,
        }
    }

    fn number(entry: &Entry<'a>, attribute: DwAt) -> Option<u64> {
        match entry.attr_value(attribute)? {
            AttributeValue::FileIndex(index) => Some(index),
            AttributeValue::Encoding(encoding) => Some(u64::from(encoding.0)),
            value => value.udata_value(),
        }
    }

    fn signed(entry: &Entry<'a>, attribute: DwAt) -> Option<i64> {
        let value = entry.attr_value(attribute)?;
        value.sdata_value().or_else(|| value.udata_value().map(|value| value as i64))
    }

    fn ranges(
        &self,
        unit: &gimli::Unit<Slice<'a>>,
        entry: &Entry<'a>,
    ) -> Result<Vec<Range<u64>>, gimli::Error> {
        let mut ranges = Vec::new();
        let mut found = self.dwarf.die_ranges(unit, entry)?;
        while let Some(range) = found.next()? {
            if range.begin < range.end && (self.is_code)(range.begin) {
                ranges.push(range.begin..range.end);
            }
        }
        Ok(ranges)
    }

    fn location(
        &self,
        unit: &gimli::Unit<Slice<'a>>,
        entry: &Entry<'a>,
        attribute: DwAt,
    ) -> Result<Location, gimli::Error> {
        let Some(value) = entry.attr_value(attribute) else { return Ok(Location::default()) };
        if let Some(expression) = value.exprloc_value() {
            return Ok(Location(vec![(0..u64::MAX, expression.0.slice().into())]));
        }
        let mut places = Vec::new();
        if let Some(mut list) = self.dwarf.attr_locations(unit, value)? {
            while let Some(place) = list.next()? {
                places.push((place.range.begin..place.range.end, place.data.0.slice().into()));
            }
        }
        Ok(Location(places))
    }

    fn unit(&mut self, unit: &gimli::Unit<Slice<'a>>) -> Result<(), gimli::Error> {
        self.out.split |= unit.dwo_name()?.is_some();
        let files = self.lines(unit)?;
        let mut raw = unit.entries_raw(None)?;
        let mut entry = Entry::null();
        let mut scopes: Vec<(isize, Scope)> = Vec::new();
        while !raw.is_empty() {
            if !raw.read_entry(&mut entry)? {
                continue;
            }
            while scopes.last().is_some_and(|(depth, _)| *depth >= entry.depth()) {
                scopes.pop();
            }
            let Some(offset) = place(&unit.header, entry.offset()) else { continue };
            let scope = self.entry(unit, &files, offset, &entry, &scopes)?;
            if entry.has_children() {
                scopes.push((entry.depth(), scope));
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        unit: &gimli::Unit<Slice<'a>>,
        files: &[FileId],
        offset: usize,
        entry: &Entry<'a>,
        scopes: &[(isize, Scope)],
    ) -> Result<Scope, gimli::Error> {
        let parent = scopes.last().map(|(_, scope)| scope);
        let file = |attribute| Self::number(entry, attribute).and_then(|at| files.get(at as usize).copied());
        match entry.tag() {
            dw::DW_TAG_subprogram => return self.subprogram(unit, offset, entry, file(dw::DW_AT_decl_file)),
            dw::DW_TAG_inlined_subroutine => {
                let Some(function) = enclosing(scopes) else { return Ok(Scope::Other) };
                let origin = self.reference(unit, entry, dw::DW_AT_abstract_origin);
                let depth =
                    1 + scopes.iter().filter(|(_, scope)| matches!(scope, Scope::Inlined { .. })).count();
                let inlined = Inlined {
                    name: None,
                    ranges: self.ranges(unit, entry)?,
                    entry: match entry.attr_value(dw::DW_AT_entry_pc) {
                        Some(value) => self.dwarf.attr_address(unit, value)?,
                        None => None,
                    },
                    call_file: file(dw::DW_AT_call_file),
                    call_line: Self::number(entry, dw::DW_AT_call_line).map(|line| line as u32),
                    depth,
                };
                let all = &mut self.out.subprograms[function].inlined;
                if let Some(origin) = origin {
                    self.pending_inlined.push((function, all.len(), origin));
                }
                let index = all.len();
                all.push(inlined);
                return Ok(Scope::Inlined { function, index });
            }
            dw::DW_TAG_lexical_block => return Ok(Scope::Block { ranges: self.ranges(unit, entry)? }),
            dw::DW_TAG_formal_parameter => self.local(unit, offset, entry, scopes, true)?,
            dw::DW_TAG_unspecified_parameters => {
                if let Some(Scope::Function { index: Some(function), .. }) = parent {
                    self.out.subprograms[*function].variadic = true;
                }
            }
            dw::DW_TAG_variable => self.variable(unit, offset, entry, scopes, file(dw::DW_AT_decl_file))?,
            dw::DW_TAG_member => {
                if let Some(&Scope::Struct(id)) = parent {
                    let member = self.member(unit, entry);
                    self.out.types.push_member(id, member);
                }
            }
            dw::DW_TAG_enumerator => {
                if let (Some(&Scope::Enum(id)), Some(name), Some(value)) =
                    (parent, self.name(unit, entry), Self::signed(entry, dw::DW_AT_const_value))
                {
                    self.out.types.push_enumerator(id, name.clone(), value);
                    self.out.enumerators.entry(name).or_insert(value);
                }
            }
            dw::DW_TAG_subrange_type => {
                if let Some(&Scope::Array(id)) = parent {
                    let count = Self::number(entry, dw::DW_AT_count).or_else(|| {
                        Self::signed(entry, dw::DW_AT_upper_bound).map(|bound| (bound.wrapping_add(1)) as u64)
                    });
                    self.out.types.push_dimension(id, count);
                }
            }
            _ => return self.type_entry(unit, offset, entry),
        }
        Ok(Scope::Other)
    }

    fn subprogram(
        &mut self,
        unit: &gimli::Unit<Slice<'a>>,
        offset: usize,
        entry: &Entry<'a>,
        file: Option<FileId>,
    ) -> Result<Scope, gimli::Error> {
        let name = self.name(unit, entry);
        let origin = self
            .reference(unit, entry, dw::DW_AT_abstract_origin)
            .or_else(|| self.reference(unit, entry, dw::DW_AT_specification));
        let line = Self::number(entry, dw::DW_AT_decl_line).map(|line| line as u32);
        let returns = self.reference(unit, entry, dw::DW_AT_type).map(|offset| self.type_id(offset));
        self.named.insert(offset, Named { name: name.clone(), origin, file, line, ty: returns });
        let ranges = self.ranges(unit, entry)?;
        if ranges.is_empty() {
            return Ok(Scope::Function { index: None, entry: offset });
        }
        let index = self.out.subprograms.len();
        let frame_base = self.location(unit, entry, dw::DW_AT_frame_base)?;
        if let Some(origin) = origin {
            self.pending_functions.push((index, origin));
        }
        self.out.subprograms.push(Subprogram {
            name,
            ranges,
            file,
            line,
            returns,
            parameters: Vec::new(),
            variadic: false,
            locals: Vec::new(),
            frame_base,
            inlined: Vec::new(),
        });
        Ok(Scope::Function { index: Some(index), entry: offset })
    }

    fn local(
        &mut self,
        unit: &gimli::Unit<Slice<'a>>,
        offset: usize,
        entry: &Entry<'a>,
        scopes: &[(isize, Scope)],
        parameter: bool,
    ) -> Result<(), gimli::Error> {
        let name = self.name(unit, entry);
        let ty = self.reference(unit, entry, dw::DW_AT_type).map(|offset| self.type_id(offset));
        let origin = self.reference(unit, entry, dw::DW_AT_abstract_origin);
        self.named.insert(offset, Named { name: name.clone(), origin, ty, ..Named::default() });
        let Some(function) = enclosing(scopes) else { return Ok(()) };
        let own = parameter && matches!(scopes.last(), Some((_, Scope::Function { index: Some(_), .. })));
        let mut location = self.location(unit, entry, dw::DW_AT_location)?;
        if let (true, Some(value)) = (location.0.is_empty(), Self::signed(entry, dw::DW_AT_const_value)) {
            location = Location::constant(value);
        }
        let scope = scopes.iter().rev().find_map(|(_, scope)| match scope {
            Scope::Block { ranges } if !ranges.is_empty() => Some(ranges.clone()),
            Scope::Inlined { function, index } => {
                Some(self.out.subprograms[*function].inlined[*index].ranges.clone())
            }
            Scope::Function { index: Some(function), .. } => {
                Some(self.out.subprograms[*function].ranges.clone())
            }
            _ => None,
        });
        let local = Local {
            name: name.unwrap_or_else(|| Arc::from("")),
            ty: ty.unwrap_or(TypeId::VOID),
            location,
            scope: scope.unwrap_or_default(),
        };
        let subprogram = &mut self.out.subprograms[function];
        let list = if own { &mut subprogram.parameters } else { &mut subprogram.locals };
        if let Some(origin) = origin {
            self.pending_locals.push(PendingLocal { function, parameter: own, index: list.len(), origin });
        }
        list.push(local);
        Ok(())
    }

    fn variable(
        &mut self,
        unit: &gimli::Unit<Slice<'a>>,
        offset: usize,
        entry: &Entry<'a>,
        scopes: &[(isize, Scope)],
        file: Option<FileId>,
    ) -> Result<(), gimli::Error> {
        let origin = self
            .reference(unit, entry, dw::DW_AT_specification)
            .or_else(|| self.reference(unit, entry, dw::DW_AT_abstract_origin));
        let fixed = entry.attr_value(dw::DW_AT_location).and_then(|value| value.exprloc_value());
        let Some(address) = fixed.and_then(|expression| self.fixed_address(unit, expression)) else {
            self.local(unit, offset, entry, scopes, false)?;
            if let Some(named) = self.named.get_mut(&offset) {
                named.file = file;
            }
            return Ok(());
        };
        let name = self.name(unit, entry).unwrap_or_else(|| Arc::from(""));
        let ty = self.type_of(unit, entry);
        let function = scopes.iter().rev().find_map(|(_, scope)| match scope {
            Scope::Function { entry, .. } => Some(*entry),
            _ => None,
        });
        self.pending_variables.push(PendingVariable { index: self.out.variables.len(), origin, function });
        self.out.variables.push(Variable { name, ty, address, function: None, file });
        Ok(())
    }

    /// The address of an expression that is nothing but an address, or the index of one.
    fn fixed_address(
        &self,
        unit: &gimli::Unit<Slice<'a>>,
        expression: gimli::Expression<Slice<'a>>,
    ) -> Option<u64> {
        let mut operations = expression.operations(unit.encoding());
        let address = match operations.next().ok()?? {
            gimli::Operation::Address { address } => address,
            gimli::Operation::AddressIndex { index } => self.dwarf.address(unit, index).ok()?,
            _ => return None,
        };
        operations.next().ok()?.is_none().then_some(address)
    }

    fn origin(&self, start: usize) -> Named {
        let mut found = Named::default();
        let mut at = Some(start);
        for _ in 0..ORIGINS_MAX {
            let Some(named) = at.and_then(|at| self.named.get(&at)) else { break };
            found.name = found.name.or_else(|| named.name.clone());
            found.file = found.file.or(named.file);
            found.line = found.line.or(named.line);
            found.ty = found.ty.or(named.ty);
            at = named.origin;
        }
        found
    }

    fn finish(&mut self) {
        for (index, origin) in std::mem::take(&mut self.pending_functions) {
            let named = self.origin(origin);
            let subprogram = &mut self.out.subprograms[index];
            subprogram.name = subprogram.name.take().or(named.name);
            subprogram.file = subprogram.file.or(named.file);
            subprogram.line = subprogram.line.or(named.line);
            subprogram.returns = subprogram.returns.or(named.ty);
        }
        for (function, index, origin) in std::mem::take(&mut self.pending_inlined) {
            self.out.subprograms[function].inlined[index].name = self.origin(origin).name;
        }
        for pending in std::mem::take(&mut self.pending_locals) {
            let named = self.origin(pending.origin);
            let subprogram = &mut self.out.subprograms[pending.function];
            let list = if pending.parameter { &mut subprogram.parameters } else { &mut subprogram.locals };
            let local = &mut list[pending.index];
            if let (true, Some(name)) = (local.name.is_empty(), named.name) {
                local.name = name;
            }
            if let (TypeId::VOID, Some(ty)) = (local.ty, named.ty) {
                local.ty = ty;
            }
        }
        for pending in std::mem::take(&mut self.pending_variables) {
            let named = pending.origin.map(|origin| self.origin(origin)).unwrap_or_default();
            let function = pending.function.and_then(|function| self.origin(function).name);
            let variable = &mut self.out.variables[pending.index];
            if let (true, Some(name)) = (variable.name.is_empty(), named.name) {
                variable.name = name;
            }
            if let (TypeId::VOID, Some(ty)) = (variable.ty, named.ty) {
                variable.ty = ty;
            }
            variable.file = variable.file.or(named.file);
            variable.function = function;
        }
        self.out.variables.retain(|variable| !variable.name.is_empty());
        self.out.lines.sort();
        self.out.types.index();
    }
}

fn enclosing(scopes: &[(isize, Scope)]) -> Option<usize> {
    scopes.iter().rev().find_map(|(_, scope)| match scope {
        Scope::Function { index, .. } => Some(*index),
        _ => None,
    })?
}

/// What identifies an entry: its offset in its section. The sections are told apart by a distance that no
/// file has.
fn place(header: &gimli::UnitHeader<Slice<'_>>, offset: gimli::UnitOffset) -> Option<usize> {
    const TYPES: usize = usize::MAX / 2;
    match offset.to_debug_info_offset(header) {
        Some(offset) => Some(offset.0),
        None => offset.to_debug_types_offset(header)?.0.checked_add(TYPES),
    }
}

//! One ELF file: what is loaded where, its symbols and its debugging information.
//!
//! Contract: immutable once read, so it is shared behind an `Arc` by every clone of a world. Reading never
//! panics: a file that is cut off or damaged is an [`ImageError`] that says what is wrong and what to do.
//! Lookups by address are binary searches, lookups by name are hash lookups.
//!
//! A program without debugging information is accepted: it has symbols but no lines, types or locals.

mod parse;
mod space;

pub use space::{Programs, Space};

use crate::elf::code;
use crate::elf::code::WaysIn;
use crate::elf::dwarf::{self, Dwarf, FileId, Subprogram, Variable};
use crate::elf::frames::CallFrames;
use crate::elf::nearest::nearest;
use crate::elf::types::{TypeId, Types};
use crate::state::{Architecture, Memory};
use rustc_hash::FxHashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use trace::{Frame, PhysAddr, Resolve, VirtAddr};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageError {
    pub file: String,
    pub problem: String,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.problem)
    }
}

impl std::error::Error for ImageError {}

/// Identifies the bytes of a file: FNV-1a, 128 bits. It guards against mistakes, not against malice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageHash(pub u128);

impl ImageHash {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let fold = |hash: u128, byte: &u8| {
            (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        };
        ImageHash(bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, fold))
    }
}

impl fmt::Display for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A piece of the file that is loaded into memory; what lies beyond `bytes` up to `size` is zero.
#[derive(Clone, Debug)]
pub struct Segment {
    pub addr: VirtAddr,
    pub phys: PhysAddr,
    pub bytes: Arc<[u8]>,
    pub size: u64,
    pub executable: bool,
    pub writable: bool,
}

/// A name the linker knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    pub name: Arc<str>,
    pub addr: VirtAddr,
    pub size: u64,
    pub code: bool,
    pub global: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);

/// Code with one name: a function, or a label of assembly up to the next.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name in the source: without `.isra.0` and the like.
    pub name: Arc<str>,
    /// The name that the linker knows.
    pub symbol: Arc<str>,
    pub start: VirtAddr,
    pub end: VirtAddr,
    subprogram: Option<u32>,
}

impl Function {
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start.0..self.end.0
    }
}

#[derive(Clone, Debug)]
pub struct Image {
    /// The file's name, for messages.
    pub name: Arc<str>,
    pub architecture: Architecture,
    pub hash: ImageHash,
    pub entry: VirtAddr,
    pub segments: Vec<Segment>,
    code: Vec<Range<u64>>,
    constants: Vec<Range<u64>>,
    symbols: Vec<Symbol>,
    dwarf: Dwarf,
    frames: CallFrames,
    /// Functions that pop arguments, and how many bytes; made when first asked for.
    popping: Arc<OnceLock<FxHashMap<u64, u16>>>,
    pub(crate) ways_in: Arc<WaysIn>,
    functions: Vec<Function>,
    /// Pieces of code by start; the pieces of one function may be apart.
    pieces: Vec<(Range<u64>, FunctionId)>,
    functions_named: FxHashMap<Arc<str>, Vec<FunctionId>>,
    /// Subprograms that have an inlined call of this name.
    inlined_named: FxHashMap<Arc<str>, Vec<u64>>,
    variables_named: FxHashMap<Arc<str>, Vec<u32>>,
    /// Variables by address: range, index.
    data: Vec<(Range<u64>, u32)>,
    symbols_named: FxHashMap<Arc<str>, u32>,
}

impl Image {
    #[must_use]
    pub fn types(&self) -> &Types {
        &self.dwarf.types
    }

    #[must_use]
    pub fn call_frames(&self) -> &CallFrames {
        &self.frames
    }

    #[must_use]
    pub fn has_debug_information(&self) -> bool {
        !self.dwarf.subprograms.is_empty()
    }

    /// Whether the debugging information was left in files beside the object files.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.dwarf.split
    }

    #[must_use]
    pub fn get(&self, id: FunctionId) -> &Function {
        &self.functions[id.0 as usize]
    }

    pub fn functions(&self) -> impl Iterator<Item = (FunctionId, &Function)> {
        self.functions.iter().enumerate().map(|(at, function)| (FunctionId(at as u32), function))
    }

    #[must_use]
    pub fn subprogram(&self, function: &Function) -> Option<&Subprogram> {
        function.subprogram.and_then(|at| self.dwarf.subprograms.get(at as usize))
    }

    /// Whether `addr` is in what is loaded from this file.
    #[must_use]
    pub fn covers(&self, addr: VirtAddr) -> bool {
        let within = |at: u64, size: u64| addr.0.checked_sub(at).is_some_and(|offset| offset < size);
        self.segments.iter().any(|segment| within(segment.addr.0, segment.size))
    }

    /// Whether `addr` lies in code of this file.
    #[must_use]
    pub fn is_code(&self, addr: VirtAddr) -> bool {
        self.code.iter().any(|range| range.contains(&addr.0))
    }

    /// What the file says of memory that nobody may write, code and constants: each piece with its address.
    pub fn unchanging(&self) -> impl Iterator<Item = (VirtAddr, &[u8])> {
        self.code.iter().chain(&self.constants).filter_map(|range| {
            let length = usize::try_from(range.end - range.start).ok()?;
            Some((VirtAddr(range.start), self.bytes(VirtAddr(range.start), length)?))
        })
    }

    /// The function that `pc` lies in, cold parts included.
    #[must_use]
    pub fn function_at(&self, pc: VirtAddr) -> Option<FunctionId> {
        let last = self.pieces.partition_point(|(range, _)| range.start <= pc.0);
        let near = self.pieces[..last].iter().rev().take(4);
        near.into_iter().find(|(range, _)| range.contains(&pc.0)).map(|(_, id)| *id)
    }

    /// The functions of a name: several if the name is static in several files or the compiler made copies.
    /// Parts of functions do not count, for they are not where a call enters.
    #[must_use]
    pub fn function(&self, name: &str) -> &[FunctionId] {
        self.functions_named.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every piece of code of a function, its cold parts included.
    #[must_use]
    pub fn ranges(&self, name: &str) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = self
            .pieces
            .iter()
            .filter(|(_, id)| &*self.get(*id).name == name)
            .map(|(range, _)| range.clone())
            .collect();
        for subprogram in &self.dwarf.subprograms {
            for inlined in subprogram.inlined.iter().filter(|inlined| inlined.name.as_deref() == Some(name)) {
                ranges.extend(inlined.ranges.iter().cloned());
            }
        }
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges
    }

    /// Where calls of `name` were inlined.
    #[must_use]
    pub fn inlined_at(&self, name: &str) -> Vec<VirtAddr> {
        let mut at: Vec<VirtAddr> = self
            .inlined_named
            .get(name)
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .copied()
            .map(VirtAddr)
            .collect();
        at.sort_unstable();
        at.dedup();
        at
    }

    #[must_use]
    pub fn nearest_functions(&self, name: &str) -> Vec<String> {
        let names = self.functions_named.keys().chain(self.inlined_named.keys());
        nearest(name, names.map(|name| &**name))
    }

    /// Variables of a name with a fixed address; globals first, then statics.
    #[must_use]
    pub fn variables(&self, name: &str) -> Vec<&Variable> {
        let at = self.variables_named.get(name).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<&Variable> = at.iter().map(|at| &self.dwarf.variables[*at as usize]).collect();
        found.sort_by_key(|variable| (variable.function.is_some(), variable.address));
        found.dedup_by_key(|variable| variable.address);
        found
    }

    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables(name).into_iter().next()
    }

    pub fn all_variables(&self) -> impl Iterator<Item = &Variable> {
        self.dwarf.variables.iter()
    }

    /// The function or else the file that a variable belongs to.
    #[must_use]
    pub fn home_of(&self, variable: &Variable) -> Option<String> {
        let function = variable.function.as_deref().map(str::to_string);
        function.or_else(|| self.path(variable.file?))
    }

    /// Whether a variable is declared in a file, of whose path `file` may be any tail.
    #[must_use]
    pub fn is_declared_in(&self, variable: &Variable, file: &str) -> bool {
        variable.file.is_some_and(|id| self.is_file(id, file))
    }

    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.symbols_named.get(name).map(|at| &self.symbols[*at as usize])
    }

    #[must_use]
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.dwarf.enumerators.get(name).copied()
    }

    #[must_use]
    pub fn nearest_values(&self, name: &str) -> Vec<String> {
        let names = self.variables_named.keys().chain(self.dwarf.enumerators.keys());
        let names = names.chain(self.functions_named.keys());
        nearest(name, names.map(|name| &**name))
    }

    /// Where the code of a source line begins. `file` may be any tail of the path, such as `thread.c`.
    #[must_use]
    pub fn lines(&self, file: &str, line: u32) -> Vec<VirtAddr> {
        let mut found: Vec<VirtAddr> = self
            .dwarf
            .lines
            .starts()
            .filter(|row| row.line == line && self.is_file(row.file, file))
            .map(|row| VirtAddr(row.address))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The lines of a file that have code, nearest to `line` first.
    #[must_use]
    pub fn nearest_lines(&self, file: &str, line: u32) -> Vec<u32> {
        let rows = self.dwarf.lines.starts().filter(|row| row.line > 0 && self.is_file(row.file, file));
        let mut lines: Vec<u32> = rows.map(|row| row.line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.sort_by_key(|other| (other.abs_diff(line), *other));
        lines
    }

    fn is_file(&self, id: FileId, wanted: &str) -> bool {
        let Some(file) = self.dwarf.files.get(id.0 as usize) else { return false };
        file.path.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            || wanted.strip_suffix(&*file.path).is_some_and(|rest| rest.ends_with('/'))
    }

    /// The file's paths as the compiler was given them, and where it ran.
    #[must_use]
    pub fn files(&self) -> &[dwarf::SourceFile] {
        &self.dwarf.files
    }

    fn path(&self, id: FileId) -> Option<String> {
        let file = self.dwarf.files.get(id.0 as usize)?;
        (!file.path.is_empty()).then(|| file.path.to_string())
    }

    /// The frames at a place: `pc` is what they carry, `at` is what is looked up (a return address belongs to
    /// the call before it).
    #[must_use]
    pub fn frames_at(&self, pc: VirtAddr, at: VirtAddr) -> Vec<Frame> {
        let row = self.dwarf.lines.at(at.0);
        let mut file = row.and_then(|row| self.path(row.file));
        let mut line = row.map(|row| row.line).filter(|line| *line > 0);
        let Some(function) = self.function_at(at).map(|id| self.get(id)) else {
            return vec![Frame { pc, function: None, file, line, interrupted: false }];
        };
        let mut frames = Vec::new();
        if let Some(subprogram) = self.subprogram(function) {
            let mut inside: Vec<_> = subprogram
                .inlined
                .iter()
                .filter(|inlined| inlined.ranges.iter().any(|range| range.contains(&at.0)))
                .collect();
            inside.sort_by_key(|inlined| std::cmp::Reverse(inlined.depth));
            for inlined in inside {
                let function = inlined.name.as_deref().map(str::to_string);
                frames.push(Frame { pc, function, file: file.take(), line: line.take(), interrupted: false });
                file = inlined.call_file.and_then(|file| self.path(file));
                line = inlined.call_line;
            }
        }
        frames.push(Frame { pc, function: Some(function.name.to_string()), file, line, interrupted: false });
        frames
    }

    /// The type of a variable or of a struct, union, enum or typedef of that name.
    #[must_use]
    pub fn type_of(&self, name: &str) -> Option<TypeId> {
        let types = self.types();
        self.variable(name)
            .map(|variable| variable.ty)
            .or_else(|| types.structure(name))
            .or_else(|| types.enumeration(name))
            .or_else(|| types.named(name))
    }

    /// `runqueue.head`, `table[3].state`: the variable at an address and the way into it.
    #[must_use]
    pub fn data_at(&self, addr: VirtAddr) -> Option<String> {
        self.object_at(addr, &[])
    }

    /// The variable at an address and the way into it; where an object of one of the types `whole` begins
    /// there, its name.
    #[must_use]
    pub fn object_at(&self, addr: VirtAddr, whole: &[TypeId]) -> Option<String> {
        let last = self.data.partition_point(|(range, _)| range.start <= addr.0);
        let known = self.data[..last].iter().rev().take(4).find(|(range, _)| range.contains(&addr.0));
        if let Some((range, at)) = known {
            let variable = &self.dwarf.variables[*at as usize];
            let path = self.dwarf.types.path_to(variable.ty, addr.0 - range.start, whole);
            return Some(match &variable.function {
                Some(function) => format!("{}{path} of {function}", variable.name),
                None => format!("{}{path}", variable.name),
            });
        }
        let last = self.symbols.partition_point(|symbol| symbol.addr <= addr);
        let symbol = self.symbols[..last]
            .iter()
            .rev()
            .take(4)
            .find(|symbol| !symbol.code && addr.0 - symbol.addr.0 < symbol.size)?;
        match addr.0 - symbol.addr.0 {
            0 => Some(symbol.name.to_string()),
            offset => Some(format!("{}+{offset}", symbol.name)),
        }
    }

    /// The static variable or data symbol of a name as a range of addresses.
    #[must_use]
    pub fn data_range(&self, name: &str) -> Option<Range<u64>> {
        if let Some(variable) = self.variable(name) {
            let size = self.types().size(variable.ty).unwrap_or(1).max(1);
            return Some(variable.address..variable.address.saturating_add(size));
        }
        let symbol = self.symbol(name).filter(|symbol| !symbol.code)?;
        Some(symbol.addr.0..symbol.addr.0.saturating_add(symbol.size.max(1)))
    }

    /// What the file itself says is in memory: enough for code and constants.
    #[must_use]
    pub fn bytes(&self, addr: VirtAddr, length: usize) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let from = usize::try_from(addr.0.checked_sub(segment.addr.0)?).ok()?;
            segment.bytes.get(from..from.checked_add(length)?)
        })
    }

    /// Whether its code may begin hardware transactions. Looks for the bytes of XBEGIN in functions, so that
    /// programs on a kernel's RAM disk do not count, and in all that is executable if there are no symbols.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        let begins = |code: &[u8]| code::begins_transaction(self.architecture, code);
        if self.functions.is_empty() {
            let code = self.segments.iter().filter(|segment| segment.executable);
            return code.into_iter().any(|segment| begins(&segment.bytes));
        }
        let code = |function: &Function| {
            let length = function.end.0.saturating_sub(function.start.0);
            self.bytes(function.start, usize::try_from(length).ok()?)
        };
        self.functions.iter().filter_map(code).any(begins)
    }

    /// Bytes of arguments that the function at `entry` takes off the stack when it returns.
    #[must_use]
    pub fn popped(&self, entry: VirtAddr) -> u16 {
        let popping = self.popping.get_or_init(|| {
            let pops = |(_, function): (_, &Function)| (function.start.0, code::popped(self, function));
            self.functions().map(pops).filter(|(_, bytes)| *bytes > 0).collect()
        });
        popping.get(&entry.0).copied().unwrap_or(0)
    }

    /// Instructions that leave a function: `ret` and `iret`; and jumps to other functions in its place.
    #[must_use]
    pub fn leaves(&self, function: FunctionId) -> code::Leaves {
        code::leaves(self, self.get(function))
    }
}

impl Memory for Image {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        buffer.copy_from_slice(self.bytes(addr, buffer.len())?);
        Some(())
    }
}

impl Resolve for Image {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        self.frames_at(pc, pc)
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        self.data_at(addr)
    }
}

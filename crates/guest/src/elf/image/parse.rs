//! From the bytes of an ELF file to an [`Image`], and the indexes that make asking it quick.

use super::{Function, FunctionId, Image, ImageError, ImageHash, Segment, Symbol};
use crate::elf::dwarf::{self, Dwarf, Slice};
use crate::elf::frames::CallFrames;
use crate::state::Architecture;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{PhysAddr, VirtAddr};

/// The file being read.
struct Reader<'a> {
    name: &'a str,
    bytes: &'a [u8],
    file: object::File<'a>,
}

impl<'a> Reader<'a> {
    fn new(name: &'a str, bytes: &'a [u8]) -> Result<Self, ImageError> {
        let fail = |problem: String| ImageError { file: name.to_string(), problem };
        if bytes.len() < 4 || bytes[..4] != *b"\x7fELF" {
            return Err(fail("not an ELF file; give the kernel as the linker wrote it, with symbols".into()));
        }
        let file = object::File::parse(bytes)
            .map_err(|error| fail(format!("damaged ELF file ({error}); is it cut off? Build it again")))?;
        Ok(Self { name, bytes, file })
    }

    fn fail(&self, problem: String) -> ImageError {
        ImageError { file: self.name.to_string(), problem }
    }

    fn damaged(&self, error: object::Error) -> ImageError {
        self.fail(format!("damaged ELF file ({error}); build it again"))
    }

    fn damaged_dwarf(&self, error: gimli::Error) -> ImageError {
        self.fail(format!("damaged debugging information ({error}); build the file again with -g"))
    }

    fn architecture(&self) -> Result<Architecture, ImageError> {
        match self.file.architecture() {
            object::Architecture::I386 => Ok(Architecture::X86),
            object::Architecture::X86_64 => Ok(Architecture::X86_64),
            object::Architecture::Riscv64 => Ok(Architecture::Riscv64),
            other => {
                Err(self.fail(format!("made for {other:?}; only x86, x86-64 and 64-bit RISC-V are known")))
            }
        }
    }

    fn segments(&self) -> Result<Vec<Segment>, ImageError> {
        let mut segments = Vec::new();
        let physical = physical_addresses(self.bytes);
        for segment in self.file.segments() {
            let data = segment.data().map_err(|error| self.damaged(error))?;
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            let (_, file_size) = segment.file_range();
            if segment.size() < file_size {
                let problem = "a segment is larger in the file than in memory; build it again";
                return Err(self.fail(problem.into()));
            }
            let phys = physical.get(&segment.address()).copied().unwrap_or(segment.address());
            segments.push(Segment {
                addr: VirtAddr(segment.address()),
                phys: PhysAddr(phys),
                bytes: Arc::from(data),
                size: segment.size(),
                executable: p_flags.contains(object::elf::PF_X),
                writable: p_flags.contains(object::elf::PF_W),
            });
        }
        Ok(segments)
    }

    /// The addresses of sections with code, in ascending order.
    fn code(&self) -> Vec<Range<u64>> {
        self.sections(|_, flags| flags.contains(object::elf::SHF_EXECINSTR))
    }

    /// The addresses of sections with constants. Call frames are none: kernels that load a program by its
    /// sections leave them out.
    fn constants(&self) -> Vec<Range<u64>> {
        self.sections(|name, flags| name.starts_with(".rodata") && !flags.contains(object::elf::SHF_WRITE))
    }

    /// The addresses of sections by name and flags, in ascending order.
    fn sections(&self, is: impl Fn(&str, object::elf::SectionFlags) -> bool) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for section in self.file.sections() {
            if let object::SectionFlags::Elf { sh_flags, .. } = section.flags()
                && is(section.name().unwrap_or_default(), sh_flags)
                && section.size() > 0
            {
                ranges.push(section.address()..section.address().saturating_add(section.size()));
            }
        }
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// Debugging information and call frames.
    fn debugging(
        &self,
        architecture: Architecture,
        is_code: &dyn Fn(u64) -> bool,
    ) -> Result<(Dwarf, CallFrames), ImageError> {
        let mut sections: FxHashMap<&str, &[u8]> = FxHashMap::default();
        let mut eh_frame_address = 0;
        for section in self.file.sections() {
            let Ok(name) = section.name() else { continue };
            if !(name.starts_with(".debug_") || name == ".eh_frame") {
                continue;
            }
            if let object::SectionFlags::Elf { sh_flags, .. } = section.flags()
                && sh_flags.contains(object::elf::SHF_COMPRESSED)
            {
                return Err(self.fail(format!(
                    "{name} is compressed; run objcopy --decompress-debug-sections on the file, or build with -gz=none"
                )));
            }
            if name == ".eh_frame" {
                eh_frame_address = section.address();
            }
            sections.insert(name, section.data().map_err(|error| self.damaged(error))?);
        }
        let data = |name: &str| sections.get(name).copied().unwrap_or(&[]);
        let section = |id: gimli::SectionId| Ok(Slice::new(data(id.name()), gimli::LittleEndian));
        let dwarf = gimli::Dwarf::load(section)
            .and_then(|dwarf| dwarf::load(&dwarf, architecture.word(), is_code))
            .map_err(|error| self.damaged_dwarf(error))?;
        let frames = CallFrames::new(architecture, data(".debug_frame"), data(".eh_frame"), eh_frame_address)
            .map_err(|error| self.damaged_dwarf(error))?;
        Ok((dwarf, frames))
    }

    /// The symbols by address; among the names of one address, sized and global ones come first.
    fn symbols(&self, is_code: &dyn Fn(u64) -> bool) -> Vec<Symbol> {
        use object::SymbolKind::{Data, File, Section, Text};
        let mut symbols = Vec::new();
        for symbol in self.file.symbols() {
            let (Ok(name), true) = (symbol.name(), symbol.is_definition() || symbol.address() != 0) else {
                continue;
            };
            if name.is_empty() || matches!(symbol.kind(), Section | File) || symbol.is_undefined() {
                continue;
            }
            symbols.push(Symbol {
                name: Arc::from(name),
                addr: VirtAddr(symbol.address()),
                size: symbol.size(),
                code: symbol.kind() == Text || (symbol.kind() != Data && is_code(symbol.address())),
                global: symbol.is_global(),
            });
        }
        symbols.sort_by(|a, b| {
            (a.addr, a.size == 0, !a.global, &a.name).cmp(&(b.addr, b.size == 0, !b.global, &b.name))
        });
        symbols
    }
}

impl Image {
    /// Reads an ELF file that is already in memory. `name` is used in messages.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Arc<Image>, ImageError> {
        let reader = Reader::new(name, bytes)?;
        let architecture = reader.architecture()?;
        let segments = reader.segments()?;
        let code = reader.code();
        let is_code = |addr: u64| code.iter().any(|range| range.contains(&addr));
        let (dwarf, frames) = reader.debugging(architecture, &is_code)?;
        let symbols = reader.symbols(&is_code);
        let mut image = Image {
            name: Arc::from(name),
            architecture,
            hash: ImageHash::of(bytes),
            entry: VirtAddr(reader.file.entry()),
            segments,
            constants: reader.constants(),
            code,
            symbols,
            dwarf,
            frames,
            popping: Arc::default(),
            ways_in: Arc::default(),
            functions: Vec::new(),
            pieces: Vec::new(),
            functions_named: FxHashMap::default(),
            inlined_named: FxHashMap::default(),
            variables_named: FxHashMap::default(),
            data: Vec::new(),
            symbols_named: FxHashMap::default(),
        };
        image.index();
        Ok(Arc::new(image))
    }

    fn index(&mut self) {
        let mut linker_name: FxHashMap<u64, Arc<str>> = FxHashMap::default();
        for (at, symbol) in self.symbols.iter().enumerate() {
            self.symbols_named.entry(symbol.name.clone()).or_insert(at as u32);
            if symbol.code {
                linker_name.entry(symbol.addr.0).or_insert_with(|| symbol.name.clone());
            }
        }
        for (at, subprogram) in self.dwarf.subprograms.iter().enumerate() {
            let Some(first) = subprogram.ranges.first() else { continue };
            let Some(name) = subprogram.name.clone().or_else(|| linker_name.get(&first.start).cloned())
            else {
                continue;
            };
            let id = FunctionId(self.functions.len() as u32);
            for range in &subprogram.ranges {
                self.pieces.push((range.clone(), id));
            }
            self.functions.push(Function {
                symbol: linker_name.get(&first.start).unwrap_or(&name).clone(),
                name,
                start: VirtAddr(first.start),
                end: VirtAddr(first.end),
                subprogram: Some(at as u32),
            });
        }
        self.pieces.sort_by_key(|(range, id)| (range.start, range.end, *id));
        self.index_assembly();
        for (at, function) in self.functions.iter().enumerate() {
            let id = FunctionId(at as u32);
            // `f.part.0` and `f.cold` begin in the middle of f.
            let partial = function.symbol.contains(".part.") || function.symbol.contains(".cold");
            let named = self.functions_named.entry(function.name.clone()).or_default();
            if !partial {
                named.push(id);
            } else if named.is_empty() {
                self.functions_named.remove(&function.name);
            }
            if function.symbol != function.name {
                self.functions_named.entry(function.symbol.clone()).or_default().push(id);
            }
        }
        for subprogram in &self.dwarf.subprograms {
            for inlined in &subprogram.inlined {
                let start = inlined.entry.or(inlined.ranges.first().map(|range| range.start));
                if let (Some(name), Some(start)) = (&inlined.name, start) {
                    self.inlined_named.entry(name.clone()).or_default().push(start);
                }
            }
        }
        for (at, variable) in self.dwarf.variables.iter().enumerate() {
            // What the linker has dropped keeps its description, at address 0.
            if variable.address == 0 && !self.covers(VirtAddr(0)) {
                continue;
            }
            self.variables_named.entry(variable.name.clone()).or_default().push(at as u32);
            let size = self.dwarf.types.size(variable.ty).unwrap_or(1).max(1);
            self.data.push((variable.address..variable.address.saturating_add(size), at as u32));
        }
        self.data.sort_by_key(|(range, at)| (range.start, *at));
    }

    /// Code that has no debugging information: symbols of assembly, each up to its size or to the next one.
    fn index_assembly(&mut self) {
        let covered = std::mem::take(&mut self.pieces);
        let covering = |addr: u64| {
            let last = covered.partition_point(|(range, _)| range.start <= addr).checked_sub(1)?;
            covered[last].0.contains(&addr).then_some(last)
        };
        let mut found: Vec<(Range<u64>, FunctionId)> = Vec::new();
        let mut last_sized_end = 0;
        for (at, symbol) in self.symbols.iter().enumerate() {
            let start = symbol.addr.0;
            let Some(section) = self.code.iter().find(|range| range.contains(&start)) else { continue };
            let duplicate = found.last().is_some_and(|(range, _)| range.start == start);
            if !symbol.code || covering(start).is_some() || start < last_sized_end || duplicate {
                continue;
            }
            let mut end = match symbol.size {
                0 => {
                    let next = self.symbols[at..].iter().find(|next| next.code && next.addr.0 > start);
                    next.map_or(section.end, |next| next.addr.0.min(section.end))
                }
                size => start.saturating_add(size),
            };
            let next = covered.partition_point(|(range, _)| range.start <= start);
            if let Some((range, _)) = covered.get(next) {
                end = end.min(range.start);
            }
            if symbol.size > 0 {
                last_sized_end = end;
            }
            let base = symbol.name.split_once(".cold").map_or(&*symbol.name, |(base, _)| base);
            let id = FunctionId(self.functions.len() as u32);
            self.functions.push(Function {
                name: Arc::from(base),
                symbol: symbol.name.clone(),
                start: symbol.addr,
                end: VirtAddr(end),
                subprogram: None,
            });
            found.push((start..end, id));
        }
        self.pieces = covered;
        self.pieces.extend(found);
        self.pieces.sort_by_key(|(range, id)| (range.start, range.end, *id));
    }
}

/// Load addresses by virtual address, from the program headers.
fn physical_addresses(bytes: &[u8]) -> FxHashMap<u64, u64> {
    use object::read::elf::{FileHeader, ProgramHeader};
    fn read<Elf: FileHeader<Endian = object::Endianness>>(bytes: &[u8]) -> Option<FxHashMap<u64, u64>> {
        let header = Elf::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, bytes).ok()?;
        let loaded = segments.iter().filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
        Some(loaded.map(|segment| (segment.p_vaddr(endian).into(), segment.p_paddr(endian).into())).collect())
    }
    read::<object::elf::FileHeader32<object::Endianness>>(bytes)
        .or_else(|| read::<object::elf::FileHeader64<object::Endianness>>(bytes))
        .unwrap_or_default()
}

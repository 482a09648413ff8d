//! Source lines of a kernel, from a vmlinux with debugging information, as distributions have it in a package
//! of its own.
//!
//! Concept: only the line tables are read (`.debug_line`), a few tens of megabytes of some hundreds: from an
//! address to file and line. Contract: total on damaged tables: what cannot be read ends there. Source: DWARF
//! 5, section 6.2. Not modelled: inlined functions, which would need all of `.debug_info`; the line is that
//! of the innermost one.

use object::{Object as _, ObjectSection as _};
use std::sync::Arc;
use trace::VirtAddr;

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    addr: u64,
    file: u32,
    /// The line; 0: nothing is known from here on.
    line: u32,
}

/// From addresses to lines.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The rows of all tables, by address.
    rows: Vec<Row>,
    files: Vec<Arc<str>>,
}

impl Lines {
    /// Reads an ELF file; the problem in words if it has no line tables that can be read.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| format!("not an ELF file ({error})"))?;
        let section = |name: &str| -> Result<&[u8], String> {
            let Some(section) = file.section_by_name(name) else { return Ok(&[]) };
            if section.compressed_data().is_ok_and(|data| data.format != object::CompressionFormat::None) {
                return Err(format!(
                    "{name} is compressed; run objcopy --decompress-debug-sections on the file"
                ));
            }
            section.data().map_err(|error| format!("damaged ELF file ({error})"))
        };
        let tables = section(".debug_line")?;
        if tables.is_empty() {
            return Err(
                "no debugging information; give the vmlinux of the distribution's -dbg package".to_owned()
            );
        }
        let strings = gimli::DebugStr::new(section(".debug_str")?, gimli::LittleEndian);
        let line_strings = gimli::DebugLineStr::new(section(".debug_line_str")?, gimli::LittleEndian);
        let mut lines = Lines::default();
        let mut offset = 0;
        // Each table begins with its length; that of 64-bit DWARF, which no kernel has, ends the reading.
        while let Some(length) = tables.get(offset..offset + 4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            lines.add(tables, offset, &strings, &line_strings);
            match offset.checked_add(4 + length) {
                Some(next) if next > offset && length < 0xffff_fff0 => offset = next,
                _ => break,
            }
        }
        // Where one sequence ends and another begins, the beginning counts.
        lines.rows.sort_by_key(|row| (row.addr, row.line > 0));
        Ok(lines)
    }

    /// Adds the table at `offset`, as far as it can be read.
    fn add(
        &mut self,
        tables: &[u8],
        offset: usize,
        strings: &gimli::DebugStr<Slice<'_>>,
        line_strings: &gimli::DebugLineStr<Slice<'_>>,
    ) {
        let section = gimli::DebugLine::new(tables, gimli::LittleEndian);
        let Ok(program) = section.program(gimli::DebugLineOffset(offset), 8, None, None) else { return };
        let header = program.header().clone();
        let text = |value: gimli::AttributeValue<Slice<'_>>| -> Option<String> {
            let bytes = match value {
                gimli::AttributeValue::String(text) => text,
                gimli::AttributeValue::DebugStrRef(at) => strings.get_str(at).ok()?,
                gimli::AttributeValue::DebugLineStrRef(at) => line_strings.get_str(at).ok()?,
                _ => return None,
            };
            Some(String::from_utf8_lossy(bytes.slice()).into_owned())
        };
        // Numbers of files in this table, and in ours.
        let mut known: Vec<(u64, u32)> = Vec::new();
        let mut rows = program.rows();
        while let Ok(Some((_, row))) = rows.next_row() {
            let line = match (row.end_sequence(), row.line()) {
                (false, Some(line)) => u32::try_from(line.get()).unwrap_or(0),
                _ => 0,
            };
            let number = row.file_index();
            let file = match known.iter().find(|(own, _)| *own == number) {
                Some((_, file)) => *file,
                None => {
                    let path = header.file(number).and_then(|entry| {
                        let name = text(entry.path_name())?;
                        let folder = entry.directory(&header).and_then(text).unwrap_or_default();
                        let relative = name.starts_with('/') || folder.is_empty();
                        Some(if relative { name } else { format!("{folder}/{name}") })
                    });
                    self.files.push(path.unwrap_or_default().into());
                    known.push((number, self.files.len() as u32 - 1));
                    self.files.len() as u32 - 1
                }
            };
            self.rows.push(Row { addr: row.address(), file, line });
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// File and line of an instruction.
    #[must_use]
    pub fn at(&self, pc: VirtAddr) -> Option<(&str, u32)> {
        let behind = self.rows.partition_point(|row| row.addr <= pc.0);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        let file = self.files.get(row.file as usize)?;
        (row.line > 0 && !file.is_empty()).then_some((file, row.line))
    }
}

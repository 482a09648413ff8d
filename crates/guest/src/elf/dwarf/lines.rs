//! Source lines: which line an address comes from, and where the code of a line begins.

use super::{Loader, Slice};
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// A source file as the compiler was given it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// The path, relative to the directory of the build where it can be.
    pub path: Arc<str>,
    /// The directory in which the compiler ran.
    pub directory: Arc<str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub address: u64,
    pub file: FileId,
    pub line: u32,
    /// Whether this is a good place for a breakpoint.
    pub statement: bool,
}

#[derive(Clone, Debug)]
struct Sequence {
    range: Range<u64>,
    rows: Range<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Lines {
    sequences: Vec<Sequence>,
    rows: Vec<Row>,
}

impl Lines {
    /// Sorts the rows, once all of them are read, so that they can be looked up.
    pub(super) fn sort(&mut self) {
        self.sequences.sort_by_key(|sequence| (sequence.range.start, sequence.rows.start));
    }

    /// The row that covers `pc`.
    #[must_use]
    pub fn at(&self, pc: u64) -> Option<&Row> {
        let last = self.sequences.partition_point(|sequence| sequence.range.start <= pc).checked_sub(1)?;
        let sequence = self.sequences[last].range.contains(&pc).then_some(&self.sequences[last])?;
        let rows = &self.rows[sequence.rows.clone()];
        rows.get(rows.partition_point(|row| row.address <= pc).checked_sub(1)?)
    }

    /// The rows at which the code of a line begins, in order of address.
    pub fn starts(&self) -> impl Iterator<Item = &Row> {
        self.sequences.iter().flat_map(|sequence| {
            let rows = &self.rows[sequence.rows.clone()];
            let mut last = None;
            rows.iter().filter(move |row| {
                let same = last == Some((row.file, row.line));
                if row.statement {
                    last = Some((row.file, row.line));
                }
                row.statement && !same
            })
        })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl<'a> Loader<'a, '_> {
    /// Reads the line table and returns the unit's file numbers.
    pub(super) fn lines(&mut self, unit: &gimli::Unit<Slice<'a>>) -> Result<Vec<FileId>, gimli::Error> {
        let Some(program) = unit.line_program.clone() else { return Ok(Vec::new()) };
        let directory: Arc<str> = match unit.comp_dir {
            Some(directory) => Arc::from(directory.to_string_lossy()),
            None => Arc::from(""),
        };
        let header = program.header();
        let first = if header.version() >= 5 { 0 } else { 1 };
        let mut files = Vec::new();
        for index in 0..header.file_names().len() as u64 + first {
            let path = match header.file(index) {
                Some(file) => {
                    let name = self.text(unit, file.path_name()).unwrap_or_else(|| Arc::from(""));
                    let folder = match file.directory_index() {
                        0 => None,
                        _ => file.directory(header).and_then(|value| self.text(unit, value)),
                    };
                    short_path(&directory, folder.as_deref(), &name)
                }
                None => Arc::from(""),
            };
            let next = FileId(self.out.files.len() as u32);
            let id = *self.file_at.entry((directory.clone(), path.clone())).or_insert(next);
            if id == next {
                self.out.files.push(SourceFile { path, directory: directory.clone() });
            }
            files.push(id);
        }
        let mut rows = program.rows();
        let mut sequence: Vec<Row> = Vec::new();
        while let Some((_, row)) = rows.next_row()? {
            if !row.end_sequence() {
                sequence.push(Row {
                    address: row.address(),
                    file: files.get(row.file_index() as usize).copied().unwrap_or(FileId(0)),
                    line: row.line().map_or(0, |line| line.get() as u32),
                    statement: row.is_stmt(),
                });
                continue;
            }
            if let Some(start) = sequence.first().map(|row| row.address)
                && start < row.address()
                && (self.is_code)(start)
            {
                sequence.sort_by_key(|row| row.address);
                let lines = &mut self.out.lines;
                let from = lines.rows.len();
                lines.rows.append(&mut sequence);
                lines.sequences.push(Sequence { range: start..row.address(), rows: from..lines.rows.len() });
            }
            sequence.clear();
        }
        Ok(files)
    }
}

/// `folder/name` without the directory of the build and without `./` and `x/../`.
fn short_path(directory: &str, folder: Option<&str>, name: &str) -> Arc<str> {
    let joined = match folder {
        Some(folder) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name.to_string(),
    };
    let joined = match joined.strip_prefix(directory) {
        Some(rest) if !directory.is_empty() => rest.trim_start_matches('/'),
        _ => &joined,
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != ".." && !last.is_empty()) => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    Arc::from(parts.join("/"))
}

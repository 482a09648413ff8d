//! Places of a description that are named by the text of a source line: `"text FUNCTION: TEXT"`.
//!
//! Concept: a line's number changes with every edit above it, its text seldom does. Such a place is the first
//! line of the function's code in whose source TEXT stands, blanks aside. It is looked up once, before the
//! description is read, and replaced by that line's number (`"line FILE:NUMBER"`), so that a finding carries
//! the number and is replayed without the sources.
//!
//! Limits: the text must be in one line, without a double quote; in a TOML string of one line.

use crate::failure::Failure;
use guest::elf::image::Image;
use std::collections::BTreeSet;
use trace::{Resolve as _, VirtAddr};

const OPENING: &str = "\"text ";

/// The description with line numbers in the place of texts. `source` gives the text of a file as the
/// debugging information names it.
pub fn with_lines(
    name: &str,
    description: &str,
    image: &Image,
    source: &dyn Fn(&str) -> Option<String>,
) -> Result<String, Failure> {
    let mut out = String::with_capacity(description.len());
    for (number, line) in description.split_inclusive('\n').enumerate() {
        let comment = line.trim_start().starts_with('#');
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once(OPENING).filter(|_| !comment) {
            let Some((place, after)) = behind.split_once('"') else { break };
            let found = find(place, image, source)
                .map_err(|why| Failure::BadInput(format!("{name}:{}: 'text {place}': {why}", number + 1)))?;
            out += &format!("{before}\"line {found}\"");
            rest = after;
        }
        out += rest;
    }
    Ok(out)
}

/// The file and line that a place means.
fn find(place: &str, image: &Image, source: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (function, text) = place.split_once(':').ok_or("write \"text FUNCTION: TEXT\"")?;
    let (function, text) = (function.trim(), squeezed(text));
    if text.is_empty() {
        return Err("write \"text FUNCTION: TEXT\"".into());
    }
    let (file, lines) = code_lines(image, function)
        .ok_or_else(|| format!("there is no function '{function}' whose lines are known"))?;
    let all = source(&file).ok_or_else(|| {
        format!("the source {file} was not found: say with --sources in which folder it is")
    })?;
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { unreachable!("not empty") };
    let numbered = (1u32..).zip(all.lines()).filter(|(number, _)| (first..=last).contains(&number));
    let at = numbered.into_iter().find(|(_, line)| squeezed(line).contains(&text)).map(|(number, _)| number);
    // A statement may begin with a line that has no code of its own.
    let at = at.and_then(|at| lines.range(at..).next());
    at.map(|at| format!("{file}:{at}"))
        .ok_or_else(|| format!("no line of {function} ({file}:{first} to {last}) has this text"))
}

/// Text without what only lays it out.
fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The file of a function, and its lines with code.
fn code_lines(image: &Image, function: &str) -> Option<(String, BTreeSet<u32>)> {
    let mut found: Option<(String, BTreeSet<u32>)> = None;
    for &id in image.function(function) {
        for addr in image.get(id).range() {
            let frames = image.frames(VirtAddr(addr));
            let own = frames.iter().find(|frame| frame.function.as_deref() == Some(function));
            let Some((file, line)) = own.and_then(|frame| Some((frame.file.as_ref()?, frame.line?))) else {
                continue;
            };
            let (known, lines) = found.get_or_insert_with(|| (file.clone(), BTreeSet::new()));
            if known == file {
                lines.insert(line);
            }
        }
    }
    found.filter(|(_, lines)| !lines.is_empty())
}

//! Descriptions of kernels: those that come with the tool, by name, and any other, by its path.

use crate::failure::Failure;
use crate::host::Host;
use crate::size::parse_size;
use crate::target::{MEMORY_BYTES, read};
use guest::hooks::description::Description;
use std::io::ErrorKind;
use std::path::Path;

/// Descriptions that come with the tool, by name.
pub const BUNDLED_DESCRIPTIONS: &[(&str, &str)] = &[
    ("pebbles", include_str!("../../../kernels/pebbles.toml")),
    ("pebbles-threads", include_str!("../../../kernels/pebbles-threads.toml")),
    ("pintos", include_str!("../../../kernels/pintos.toml")),
    ("xv6", include_str!("../../../kernels/xv6.toml")),
];

/// A description by name or path: its name and text.
pub fn description(host: &dyn Host, name: &str) -> Result<(String, String), Failure> {
    if let Some((name, text)) = BUNDLED_DESCRIPTIONS.iter().find(|(bundled, _)| *bundled == name) {
        return Ok((format!("{name}.toml"), (*text).to_owned()));
    }
    let path = Path::new(name);
    let missing = |error: &Failure| matches!(error, Failure::Unreadable { error, .. } if error.kind() == ErrorKind::NotFound);
    let file = read(host, path);
    if path.extension().is_none() && file.as_ref().is_err_and(missing) {
        let known: Vec<&str> = BUNDLED_DESCRIPTIONS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::BadFlag(format!(
            "there is no description '{name}': give one of {} or the path of a TOML file (rockfall init drafts one)",
            known.join(", ")
        )));
    }
    let text = String::from_utf8(file?)
        .map_err(|_| Failure::BadFlag(format!("{name} is not a text file; a description is TOML")))?;
    Ok((name.to_owned(), text))
}

/// The memory that a kernel takes for granted, as its description says.
pub fn memory_needed(name: &str, text: &str) -> Result<u64, Failure> {
    let description =
        Description::parse(name, text).map_err(|problem| Failure::BadInput(problem.to_string()))?;
    let Some(memory) = &description.tables.machine.memory else { return Ok(MEMORY_BYTES) };
    parse_size(memory.as_ref()).map_err(|why| {
        let line = description.line(memory.span().start);
        Failure::BadInput(format!("{name}:{line}: 'machine.memory': {why}"))
    })
}

//! Functions and variables whose races are not reported (`--ignore`).

use crate::files::read;
use campaign::Failure;
use std::collections::BTreeSet;
use std::path::Path;

/// A list of names, from the command line or from files.
#[derive(Debug, Default)]
pub struct Ignored(BTreeSet<String>);

impl Ignored {
    /// Each argument is a name, or `@FILE` with a name on each line; what follows a `#` there is a comment.
    pub fn load(arguments: &[String]) -> Result<Self, Failure> {
        let mut names = BTreeSet::new();
        for argument in arguments {
            match argument.strip_prefix('@') {
                None => _ = names.insert(argument.clone()),
                Some(path) => {
                    let text = read(Path::new(path))?;
                    let text = String::from_utf8_lossy(&text);
                    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(line).trim());
                    names.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
                }
            }
        }
        Ok(Self(names))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_function(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether the list has a variable, or something that it is a part of: `ptable` has
    /// `ptable.proc[3].state`.
    pub fn has_variable(&self, name: &str) -> bool {
        let ends = name.char_indices().filter(|(_, character)| ['.', '[', '+', ' '].contains(character));
        ends.map(|(at, _)| at).chain([name.len()]).any(|end| self.0.contains(&name[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_parts() {
        let ignored = Ignored::load(&["ptable".to_owned(), "task_struct.on_cpu".to_owned()]);
        let ignored = ignored.unwrap_or_default();
        for (name, expected) in [
            ("ptable", true),
            ("ptable.proc[3].state", true),
            ("ptable+0x34", true),
            ("ptables", false),
            ("task_struct.on_cpu", true),
            ("task_struct.on_rq", false),
        ] {
            assert_eq!(ignored.has_variable(name), expected, "{name}");
        }
        assert!(ignored.has_function("ptable") && !ignored.has_function("ptable.proc"));
    }
}

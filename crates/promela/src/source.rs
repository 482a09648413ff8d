//! C files as the compiler sees them: through its preprocessor, whose line markers keep places true.

use crate::c::{Unit, parse};
use crate::check::Source;
use crate::spin::{Failure, MayGoOn, Progress, execute};
use std::path::Path;
use std::process::Command;

/// Reads all files of a check, whose paths count from `folder`.
pub fn read(source: &Source, folder: &Path, may_go_on: MayGoOn<'_>) -> Result<Unit, String> {
    let word_bits = if source.flags.iter().any(|flag| flag == "-m64") { 64 } else { 32 };
    let mut unit: Option<Unit> = None;
    for file in &source.files {
        let path = folder.join(file);
        if !path.is_file() {
            return Err(format!(
                "there is no file {}: 'source.files' counts from the check file",
                path.display()
            ));
        }
        let text = preprocess(source, folder, file, may_go_on)?;
        let read = parse(file, &text, word_bits);
        match &mut unit {
            Some(unit) => unit.join(read),
            None => unit = Some(read),
        }
    }
    unit.ok_or_else(|| "'source.files' names no C file".to_owned())
}

/// The text of one file after `gcc -E`; what the compiler complains about is reported in its words.
fn preprocess(source: &Source, folder: &Path, file: &str, may_go_on: MayGoOn<'_>) -> Result<String, String> {
    let command = |mode: &str| {
        let mut command = Command::new("gcc");
        command.current_dir(folder).arg(mode);
        command.args(source.define.iter().map(|name| format!("-D{name}")));
        command.args(source.include.iter().map(|path| format!("-I{path}")));
        command.args(&source.flags).arg(file);
        command
    };
    let go_on = |_: &str| may_go_on(Progress::default());
    let in_words = |failure: Failure| failure.to_string();
    let syntax = execute(command("-fsyntax-only"), "gcc", &go_on).map_err(in_words)?;
    if syntax.stopped {
        return Err(Failure::Stopped.to_string());
    }
    if !syntax.success {
        let error = syntax.lines.iter().find(|line| line.contains("error:")).cloned();
        return Err(format!(
            "{file} is not C that gcc accepts with these include paths and macros: {}",
            error.unwrap_or_else(|| syntax.last())
        ));
    }
    let mut quiet = command("-E");
    quiet.arg("-w");
    let done = execute(quiet, "gcc", &go_on).map_err(in_words)?;
    if done.stopped {
        return Err(Failure::Stopped.to_string());
    }
    if !done.success {
        return Err(format!("{file} cannot be preprocessed: {}", done.last()));
    }
    Ok(done.lines.join("\n"))
}

//! The two projects of the Pebbles course: a thread library (P2), which is tested on the bundled kernel, and
//! a kernel (P3).

use super::{Project, Ready};
use crate::files::{read, write_whole};
use campaign::Failure;
use campaign::narrate::quoted;
use guest::elf::image::Image;
use guests::courses;
use std::path::{Path, PathBuf};

/// Where programs are put when they are built.
const BUILT: &str = "temp";

impl Project {
    /// Links the library with our tests and builds the student's own; the kernel is the bundled one.
    pub(super) fn p2(&self) -> Result<Ready, Failure> {
        let folder = self.root.join("user/progs");
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::Unwritable { path: folder.clone(), error })?;
        for (name, text) in courses::P2 {
            write_whole(&folder.join(name), text.as_bytes())?;
        }
        println!("Tests of ours are in {}, with names that begin with rf_.", folder.display());
        let config = String::from_utf8_lossy(&read(&self.root.join("config.mk"))?).into_owned();
        let mut own = words_of(&config, "STUDENTTESTS");
        let ours: Vec<String> = courses::tests(courses::P2).into_iter().map(str::to_owned).collect();
        own.retain(|name| !ours.contains(name));
        own.extend(ours.iter().cloned());
        let names: Vec<String> = own.iter().cloned().chain(words_of(&config, "410TESTS")).collect();
        let built = self.root.join(BUILT);
        for name in &names {
            let _ = std::fs::remove_file(built.join(name));
        }
        let mut arguments = vec![
            "-k".to_owned(),
            "UPDATE_METHOD=offline".to_owned(),
            format!("STUDENTTESTS={}", own.join(" ")),
        ];
        arguments.extend(names.iter().map(|name| format!("{BUILT}/{name}")));
        let (_, said) = self.tools.try_make(&self.root, &arguments)?;
        let (mut tests, missing): (Vec<String>, Vec<String>) =
            names.into_iter().partition(|name| built.join(name).is_file());
        if tests.is_empty() {
            // For what it says.
            self.tools.make(&self.root, &arguments)?;
        }
        if !missing.is_empty() {
            let why =
                said.lines().find(|line| line.contains("undefined reference") || line.contains("error:"));
            let why = why.map(|why| format!(" ({})", why.trim())).unwrap_or_default();
            println!("Not built: {}{why}", missing.join(", "));
        }
        tests.sort_by_key(|name| !ours.contains(name));
        let library = self.describe("pebbles-threads")?;
        Ok(Ready::of_programs(&built, &library, tests))
    }

    /// Builds the kernel and drafts its description.
    pub(super) fn p3(&self) -> Result<Ready, Failure> {
        self.tools.make(&self.root, &["UPDATE_METHOD=offline".to_owned(), "kernel".to_owned()])?;
        let kernel = self.root.join("kernel");
        let image = Image::parse(&kernel.display().to_string(), &read(&kernel)?)
            .map_err(|error| Failure::BadInput(error.to_string()))?;
        let path = self.output.join("p3.toml");
        if !path.exists() {
            write_whole(&path, (guest::hooks::init::draft(&image) + CUSTOMS).as_bytes())?;
        }
        let config = String::from_utf8_lossy(&read(&self.root.join("config.mk"))?).into_owned();
        let tests = ["STUDENTTESTS", "410TESTS"].iter().flat_map(|name| words_of(&config, name));
        let programs = self.root.join(BUILT);
        let kernel = format!("{} --programs {}", quoted(&kernel), quoted(&programs));
        let mut ready = Ready::of_kernel(&kernel, &path, tests.collect());
        ready.questions = questions(&path);
        Ok(ready)
    }
}

/// How the course's programs say that something went wrong, whatever the kernel is like.
const CUSTOMS: &str = "
[[console]]
# The tests of the course say so when they fail.
pattern = \"FAIL\"

[[console]]
# What the course's shell says of a program that the kernel has killed.
pattern = \"exit status -2\"
";

/// How many lines of a draft want an answer.
fn questions(draft: &Path) -> usize {
    let text = std::fs::read_to_string(draft).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('#') && line.contains("# not found")).count()
}

/// The words of a variable of a makefile, set once or several times, over several lines.
fn words_of(makefile: &str, variable: &str) -> Vec<String> {
    let text = makefile.replace("\\\n", " ");
    let value = |line: &str| {
        let rest = line.strip_prefix(variable)?.trim_start();
        let rest =
            rest.strip_prefix("+=").or_else(|| rest.strip_prefix(":=")).or_else(|| rest.strip_prefix('='))?;
        Some(rest.split('#').next().unwrap_or_default().to_owned())
    };
    let values: Vec<String> = text.lines().filter_map(value).collect();
    values.iter().flat_map(|value| value.split_whitespace()).map(str::to_owned).collect()
}

/// Where the folder of such a project begins.
pub(super) fn is_library(folder: &Path) -> bool {
    let places: [PathBuf; 2] = [folder.join("user/libthread"), folder.join("user/lib/thread")];
    folder.join("config.mk").is_file() && places.iter().any(|place| place.is_dir())
}

pub(super) fn is_kernel(folder: &Path) -> bool {
    folder.join("config.mk").is_file() && folder.join("kern").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_makefile() {
        let text = "STUDENTTESTS = one two # not this\n410TESTS = three \\\n  four\n410TESTS += five\nSTUDENTTESTSX = six\n";
        assert_eq!(words_of(text, "STUDENTTESTS"), ["one", "two"]);
        assert_eq!(words_of(text, "410TESTS"), ["three", "four", "five"]);
    }
}

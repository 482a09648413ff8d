//! The program under test: which threads are in it, and whether its file is what runs.
//!
//! A program is recognised by its address space, not by its name alone: a test may fork, and a shell may run
//! the same file twice. The first space that is given to the program when the test starts is the one under
//! test.

use crate::elf::image::Image;
use crate::hooks::threads::Thread;
use crate::hooks::tracker::{Signal, Tracker};
use machine::Machine;
use std::sync::Arc;
use trace::{CpuId, Stack, VirtAddr};

/// The bits of CR3 that are the page directory's address.
const DIRECTORY: u64 = !0xfff;

impl Tracker {
    #[must_use]
    pub(crate) fn is_tested_space(&self, cr3: u64) -> bool {
        self.tested_space.is_some_and(|space| space & DIRECTORY == cr3 & DIRECTORY)
    }

    /// Whether a thread is in the program under test. Where the description does not tell address spaces, the
    /// program's file decides.
    #[must_use]
    pub fn is_tested(&self, machine: &Machine, thread: &Thread) -> bool {
        let Some(tested) = &self.kernel.tested else { return false };
        match &self.kernel.space {
            Some(space) => {
                self.anywhere(machine, space, &[thread.key]).is_some_and(|space| self.is_tested_space(space))
            }
            None => thread.program.as_ref().is_some_and(|program| Arc::ptr_eq(program, &tested.image)),
        }
    }

    /// Whether the running thread is in the program under test.
    #[must_use]
    pub(crate) fn runs_tested(&self, machine: &Machine) -> bool {
        self.threads.current().is_some_and(|thread| self.is_tested(machine, thread))
    }

    /// The part of a stack that is worth telling: with a program under test its own, not what the kernel does
    /// for it.
    #[must_use]
    pub(crate) fn relevant(&self, mut stack: Stack) -> Stack {
        if let Some(tested) = &self.kernel.tested
            && let Some(own) = stack.iter().position(|frame| tested.image.covers(frame.pc))
        {
            stack.drain(..own);
        }
        stack
    }

    /// The running thread leaves its program; if nobody else is in it, its test is over.
    pub(crate) fn leaves_program(&mut self, machine: &Machine, signals: &mut Vec<Signal>) {
        if !self.runs_tested(machine) {
            return;
        }
        if let Some(thread) = self.threads.current_mut() {
            thread.left = true;
        }
        self.leaves_locks();
        if self.threads.iter().all(|thread| thread.left || !self.is_tested(machine, thread)) {
            signals.push(Signal::ProgramOver);
        }
    }
}

/// Names that kernels keep are cut to fit; a name this long may be the beginning of a longer one.
const NAME_CUT_MIN: usize = 15;

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether what a kernel calls a program (a path, a command line, or what fits of it) means this file.
#[must_use]
pub fn means(asked: &str, file: &str) -> bool {
    let (asked, file) = (base(asked.split_whitespace().next().unwrap_or("")), base(file));
    asked == file || asked.len() >= NAME_CUT_MIN && file.starts_with(asked)
}

/// The file of a program, by the name that its kernel has for it. Files that begin with an underscore, so as
/// not to be taken for the host's own commands, are meant without it.
#[must_use]
pub fn named(programs: &[Arc<Image>], name: &str) -> Option<Arc<Image>> {
    let word = base(name.split_whitespace().next().unwrap_or(""));
    let files = || programs.iter().map(|image| (base(&image.name), image));
    let exact = files().find(|(file, _)| *file == word);
    let underscored = || files().find(|(file, _)| file.strip_prefix('_') == Some(word));
    let cut = || files().find(|(file, _)| means(word, file));
    exact.or_else(underscored).or_else(cut).map(|(_, image)| image.clone())
}

/// The first place where memory is not what the file says, for what may not be written. The file's headers do
/// not count: kernels need not load them, and a stripped copy has others.
#[must_use]
pub fn differs(machine: &Machine, cpu: CpuId, image: &Image) -> Option<VirtAddr> {
    for (addr, bytes) in image.unchanging() {
        let mut memory = vec![0; bytes.len()];
        if !machine.read_virt(cpu, addr, &mut memory) {
            return Some(addr);
        }
        if let Some(at) = memory.iter().zip(bytes).position(|(a, b)| a != b) {
            return Some(addr.offset(at as u64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::means;

    #[test]
    fn a_kernel_means_a_file_by_a_path_a_command_line_or_what_fits_of_it() {
        for (asked, file, same) in [
            ("args", "args", true),
            ("/bin/args", "args", true),
            ("args one two", "args", true),
            ("args", "bin/args", true),
            ("a-name-that-is-", "a-name-that-is-long", true),
            ("a-name-that", "a-name-that-is-long", false),
            ("args", "args-many", false),
            ("", "args", false),
        ] {
            assert_eq!(means(asked, file), same, "{asked:?} {file:?}");
        }
    }
}

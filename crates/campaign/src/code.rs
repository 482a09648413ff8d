//! What is known of the code under test before anything has run.

use detect::Race;
use guest::driving::everywhere::Everywhere;
use guest::hooks::kernel::Kernel;
use std::collections::BTreeSet;
use trace::{Resolve as _, VirtAddr};

/// What is known of the code under test.
pub struct Code<'a> {
    kernel: &'a Kernel,
    /// Functions that initialise or destroy what the lock functions work on.
    initialisers: BTreeSet<String>,
    accesses: Everywhere,
}

impl<'a> Code<'a> {
    pub fn new(kernel: &'a Kernel) -> Self {
        let names = kernel.lock_functions();
        let stem = |name: &str| name.rsplit_once('_').map(|(stem, _)| stem.to_owned());
        let stems: BTreeSet<String> = names.iter().filter_map(|name| stem(name)).collect();
        let both = |stem: &String| [format!("{stem}_init"), format!("{stem}_destroy")];
        let accesses = Everywhere::new(kernel.subject(), kernel.tested.is_some());
        Self { kernel, initialisers: stems.iter().flat_map(both).collect(), accesses }
    }

    /// The address that an instruction names by itself.
    pub fn named(&self, pc: VirtAddr) -> Option<VirtAddr> {
        self.accesses.named(pc)
    }

    /// Whether a race is one of the code that is tested: the kernel's own, or the program's.
    pub fn counts(&self, race: &Race) -> bool {
        let own = |pc: VirtAddr| {
            self.kernel.subject().function_at(pc).is_some()
                && !self.kernel.raceless_code.iter().any(|range| range.contains(&pc.0))
        };
        own(race.first.pc) && own(race.second.pc)
    }

    /// Whether the instruction belongs to a function that initialises or destroys a lock or the like.
    pub fn initialises(&self, pc: VirtAddr) -> bool {
        let frames = self.kernel.subject().frames(pc);
        let names = frames.iter().filter_map(|frame| frame.function.as_ref());
        names.into_iter().any(|name| self.initialisers.contains(name))
    }

    /// Whether the instruction has a point wherever every shared access has one.
    pub fn is_access(&self, pc: VirtAddr) -> bool {
        // Between iterations there are points only where they are asked for.
        self.accesses.knows(pc) && !guest::elf::code::is_repeated(self.kernel.subject(), pc)
    }

    /// Whether the instruction addresses, by its form, variables of its own function on the stack.
    pub fn is_own_frame(&self, pc: VirtAddr) -> bool {
        guest::elf::code::addresses_own_frame(self.kernel.subject(), pc)
    }

    /// The function and line of an instruction, in words.
    pub fn place(&self, pc: VirtAddr) -> String {
        let frames = self.kernel.subject().frames(pc);
        let frame = frames.first();
        match frame.and_then(|frame| Some((frame.function.as_ref()?, frame.file.as_ref()?, frame.line?))) {
            Some((function, file, line)) => {
                let file = file.rsplit('/').next().unwrap_or(file);
                format!("{function} ({file}:{line})")
            }
            None => pc.to_string(),
        }
    }
}

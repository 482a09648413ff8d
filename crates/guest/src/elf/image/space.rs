//! The code that an address space holds: the kernel's, and a program's.

use super::Image;
use std::ops::Range;
use std::sync::Arc;
use trace::{Frame, Resolve, VirtAddr};

/// The kernel and the user programs that may run on it.
///
/// The kernel's addresses mean the same in every address space; for the others the program that owns the
/// space has to be chosen, by [`Programs::in_program`].
#[derive(Clone, Debug)]
pub struct Programs {
    pub kernel: Arc<Image>,
    programs: Vec<(Arc<str>, Arc<Image>)>,
}

impl Programs {
    #[must_use]
    pub fn new(kernel: Arc<Image>) -> Self {
        Programs { kernel, programs: Vec::new() }
    }

    /// Adds a user program under the name by which the kernel knows it.
    pub fn add(&mut self, name: &str, image: Arc<Image>) {
        self.programs.push((Arc::from(name), image));
    }

    /// The program called `name`; a path or an extension around the name does not matter.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Arc<Image>> {
        let stem = |name: &str| {
            let last = name.rsplit('/').next().unwrap_or(name);
            last.split('.').next().unwrap_or(last).trim_start_matches('_').to_string()
        };
        let exact = self.programs.iter().find(|(own, _)| &**own == name);
        let (_, image) = exact.or_else(|| self.programs.iter().find(|(own, _)| stem(own) == stem(name)))?;
        Some(image)
    }

    /// The names as seen from the address space of a program. With no program given, the only one there is,
    /// if so.
    #[must_use]
    pub fn in_program(&self, name: Option<&str>) -> Space {
        let program = match name {
            Some(name) => self.program(name).cloned(),
            None if self.programs.len() == 1 => Some(self.programs[0].1.clone()),
            None => None,
        };
        Space { kernel: self.kernel.clone(), program, timer: Arc::default() }
    }
}

/// One address space: the kernel, and the program of the space if it is known.
#[derive(Clone, Debug)]
pub struct Space {
    pub kernel: Arc<Image>,
    pub program: Option<Arc<Image>>,
    /// The code that handles the timer's interrupt, as far as it is known.
    pub timer: Arc<[Range<u64>]>,
}

impl Space {
    /// The file whose code or data `addr` is.
    #[must_use]
    pub fn image_at(&self, addr: VirtAddr) -> Option<&Arc<Image>> {
        let known = std::iter::once(&self.kernel).chain(&self.program);
        let mut known = known.filter(|image| image.covers(addr));
        known.next()
    }

    #[must_use]
    pub fn frames_at(&self, pc: VirtAddr, at: VirtAddr) -> Vec<Frame> {
        match self.image_at(at) {
            Some(image) => image.frames_at(pc, at),
            None => vec![Frame { pc, function: None, file: None, line: None, interrupted: false }],
        }
    }
}

impl Resolve for Space {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        self.frames_at(pc, pc)
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        self.image_at(addr)?.data_at(addr)
    }
}

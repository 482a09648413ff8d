//! Whether somebody who has run for very long gets on: code that goes over memory not written before comes to an
//! end.

use machine::Machine;

/// Who has run for too long is asked every so many instructions whether it has come to memory that it had not written before, as
/// when a program's memory is freed page by page; that comes to an end.
pub(super) const GROWTH_INSTRUCTIONS: u64 = 10_000_000;
const GROWTH_BYTES_MIN: usize = 64 << 10;

/// How much memory has been written since somebody had run for too long.
#[derive(Default)]
pub(super) struct Growth {
    /// The machine as it was then.
    began: Option<Box<Machine>>,
    bytes: usize,
}

impl Growth {
    /// Whether the guest has written much that it had not written before when this was asked last. The first time it has.
    pub(super) fn goes_on(&mut self, machine: &Machine) -> bool {
        let Some(began) = &self.began else {
            self.began = Some(Box::new(machine.clone()));
            return true;
        };
        let bytes = machine.memory.bytes_apart(&began.memory);
        let grown = bytes >= self.bytes + GROWTH_BYTES_MIN;
        self.bytes = bytes;
        grown
    }
}

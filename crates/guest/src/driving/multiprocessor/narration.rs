//! What a step that is being taken holds beside its accesses.

use trace::{Event, Stack};

/// The state before an access.
#[derive(Clone)]
pub struct BeforeAccess {
    pub stack: Stack,
    pub object: Option<String>,
}

#[derive(Default)]
pub struct Narration {
    pub events: Vec<Event>,
    /// Console output that is not yet a whole line.
    pub console: String,
    /// The state of each processor that stands before an access, if the execution is narrated: to be shown
    /// with the access.
    pub narrated: Option<Vec<Option<BeforeAccess>>>,
}

impl Narration {
    pub const fn is_narrated(&self) -> bool {
        self.narrated.is_some()
    }
}

/// Between two steps there are no events.
impl Clone for Narration {
    fn clone(&self) -> Self {
        Self { events: Vec::new(), console: self.console.clone(), narrated: self.narrated.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.events.clear();
        self.console.clone_from(&source.console);
        self.narrated.clone_from(&source.narrated);
    }
}

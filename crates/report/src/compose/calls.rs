//! System calls: which one a thread is in, and where on its stack the kernel's own work for it begins.
//!
//! A kernel has one function that all system calls come through, the dispatcher: the one in which calls of
//! several numbers are seen. Its callers are the same for everything that a thread does in the kernel, so
//! they say nothing.

use crate::story::Place;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Action, Frame, Step};

/// What kernels put before the names of the functions behind system calls.
const PREFIXES: [&str; 2] = ["sys_", "syscall_"];

/// The functions that system calls of several numbers come through.
pub(super) fn dispatchers(steps: &[Step]) -> BTreeSet<String> {
    let mut numbers: BTreeMap<&String, BTreeSet<u64>> = BTreeMap::new();
    for event in steps.iter().flat_map(|step| &step.events) {
        if let (Action::SystemCall { number }, Some([first, _, ..])) = (&event.action, event.stack.as_deref())
            && let Some(function) = &first.function
        {
            numbers.entry(function).or_default().insert(*number);
        }
    }
    numbers.into_iter().filter(|(_, numbers)| numbers.len() > 1).map(|(name, _)| name.clone()).collect()
}

/// How many frames are the kernel's work for a system call; all, if there is none.
pub(super) fn work_frames(stack: &[Frame], dispatchers: &BTreeSet<String>) -> usize {
    let dispatches = |frame: &Frame| frame.function.as_ref().is_some_and(|name| dispatchers.contains(name));
    // A dispatcher that stands there itself is all there is to tell.
    stack.iter().position(dispatches).filter(|at| *at > 0).unwrap_or(stack.len())
}

/// The name of the system call in which a thread has come to a place: by the kernel's function for it, else
/// by what the program called. `None` if the place says so itself, or if the stack is of another moment.
pub(super) fn named(stack: &[Frame], to: &Place, dispatchers: &BTreeSet<String>) -> Option<String> {
    let work = work_frames(stack, dispatchers);
    // Above a dispatcher that was interrupted itself is nothing of a system call.
    let beneath =
        stack.get(work..).filter(|beneath| beneath.first().is_some_and(|first| !first.interrupted))?;
    let own = stack[work - 1].function.as_deref();
    let short = own.and_then(|name| PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)));
    let stub = || beneath.iter().find(|frame| frame.interrupted).and_then(|frame| frame.function.as_deref());
    let call = short.or_else(stub).or(own)?;
    let stands = stack[..work].iter().any(|frame| frame.function == to.function);
    let says = to.function.as_deref().is_some_and(|name| {
        name == call || PREFIXES.iter().any(|prefix| name.strip_prefix(prefix) == Some(call))
    });
    (stands && !says).then(|| call.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::VirtAddr;

    fn frame(name: &str) -> Frame {
        let (function, interrupted) = match name.strip_prefix('!') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let function = (!function.is_empty()).then(|| function.to_string());
        Frame { pc: VirtAddr(0), function, file: None, line: None, interrupted }
    }

    #[test]
    fn a_call_is_named_by_the_kernel_or_the_program() {
        let dispatchers = BTreeSet::from(["syscall".to_string()]);
        let named = |names: &[&str], to: &str| {
            let stack: Vec<Frame> = names.iter().map(|name| frame(name)).collect();
            let to = Place { function: Some(to.to_string()), ..Place::default() };
            named(&stack, &to, &dispatchers).unwrap_or_default()
        };
        // A program may have no function of its own for the call.
        let read = ["sleep", "piperead", "sys_read", "syscall", "trap", "!main"];
        assert_eq!(named(&read, "piperead"), "read");
        assert_eq!(named(&read, "sys_read"), "");
        assert_eq!(named(&read, "exit"), "");
        // The kernel's function for it may have been left by a jump.
        let fork = ["allocproc", "copy", "syscall", "trap", "!fork", "main"];
        assert_eq!(named(&fork, "allocproc"), "fork");
        assert_eq!(named(&["allocproc", "copy", "syscall", "trap", "!"], "allocproc"), "copy");
        assert_eq!(named(&["scheduler", "mpmain"], "scheduler"), "");
        assert_eq!(named(&["syscall", "trap", "!read"], "syscall"), "");
        assert_eq!(named(&["trap", "entry", "!syscall", "trap", "entry", "!read"], "entry"), "");
    }
}

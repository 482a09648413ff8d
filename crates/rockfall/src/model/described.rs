//! What a kernel's description says that a model can use: which functions take locks, and which manage the
//! heap.

use crate::files::Files;
use campaign::Failure;
use campaign::described::description;
use guest::hooks::description::{Description, LockKind, Names};
use promela::Check;
use promela::check::{HeapFunctions, LockFunctions};

/// Adds the description's locks and heaps to a check that does not have them.
pub fn add(check: &mut Check, name: &str) -> Result<(), Failure> {
    let (file, text) = description(&Files::default(), name)?;
    let parsed =
        Description::parse(&file, &text).map_err(|problem| Failure::BadInput(problem.to_string()))?;
    for lock in &parsed.tables.lock {
        let lock = lock.get_ref();
        let counts = lock.kind == LockKind::Semaphore;
        for (take, give) in functions(&lock.lock).into_iter().zip(functions(&lock.unlock)) {
            if check.locks.iter().all(|known| known.lock != take) {
                check.locks.push(LockFunctions { lock: take, unlock: give, argument: 0, counts });
            }
        }
    }
    for heap in &parsed.tables.heap {
        let heap = heap.get_ref();
        let hooked = |names: Option<&Names>| names.map(hooked_function).unwrap_or_default();
        let alloc = heap.alloc.first().map(|hook| hooked(hook.get_ref().on.as_ref()));
        let free = heap.free.first().map(|hook| hooked(hook.get_ref().on.as_ref()));
        if let (Some(alloc), Some(free)) = (alloc, free)
            && check.heaps.iter().all(|known| known.alloc != alloc)
        {
            check.heaps.push(HeapFunctions { alloc, free });
        }
    }
    Ok(())
}

/// The functions of a list, which may be narrowed by conditions or excused from being there.
fn functions(names: &Option<Names>) -> Vec<String> {
    let plain = |name: &String| {
        let name = name.split(" if ").next().unwrap_or(name);
        name.trim().trim_end_matches('?').to_owned()
    };
    names.iter().flat_map(|names| &names.get_ref().0).map(plain).collect()
}

/// The function of a place such as `leave malloc`.
fn hooked_function(names: &Names) -> String {
    let first = names.get_ref().0.first().map_or("", String::as_str);
    first.rsplit(' ').next().unwrap_or("").trim_end_matches('?').to_owned()
}

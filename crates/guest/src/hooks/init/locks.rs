//! Locks, by the usual names of the functions that take and release them.

use super::{Draft, member};
use crate::elf::code;
use crate::elf::image::Image;
use crate::elf::types::Type;

const LOCKS: [(&str, &str, &str, &str); 14] = [
    ("mutex_lock", "mutex_trylock", "mutex_unlock", "mutex"),
    ("mutex_acquire", "mutex_try_acquire", "mutex_release", "mutex"),
    ("lock_acquire", "lock_try_acquire", "lock_release", "mutex"),
    ("kmutex_lock", "kmutex_trylock", "kmutex_unlock", "mutex"),
    ("acquiresleep", "tryacquiresleep", "releasesleep", "mutex"),
    ("spin_lock", "spin_trylock", "spin_unlock", "spin"),
    ("spinlock_acquire", "spinlock_try", "spinlock_release", "spin"),
    ("spinlock_lock", "spinlock_trylock", "spinlock_unlock", "spin"),
    ("acquire", "try_acquire", "release", "spin"),
    ("sema_down", "sema_try_down", "sema_up", "semaphore"),
    ("sem_wait", "sem_trywait", "sem_signal", "semaphore"),
    ("sem_wait", "sem_trywait", "sem_post", "semaphore"),
    ("semaphore_wait", "semaphore_try", "semaphore_signal", "semaphore"),
    ("lock", "trylock", "unlock", "mutex"),
];

/// What a function that releases a lock calls to do so, if that has a name like its own: others, who go to sleep with
/// interrupts off, may call it directly.
fn inner(image: &Image, unlock: &str) -> Option<String> {
    let outer = image.get(*image.function(unlock).first()?);
    let called = code::callees(image, outer).into_iter().filter_map(|at| image.function_at(at));
    let mut called = called.map(|id| image.get(id)).filter(|function| &*function.name != unlock);
    called.find(|function| function.name.contains(unlock)).map(|function| function.name.to_string())
}

pub fn locks(draft: &mut Draft<'_>) {
    let image = draft.image;
    let mut seen: Vec<&str> = Vec::new();
    for (lock, try_lock, unlock, kind) in LOCKS {
        if image.function(lock).is_empty() || image.function(unlock).is_empty() || seen.contains(&lock) {
            continue;
        }
        // Without an argument it is no lock but the one way to turn interrupts off.
        let subprogram = image.subprogram(image.get(image.function(lock)[0]));
        if subprogram.is_some_and(|subprogram| subprogram.parameters.is_empty()) {
            continue;
        }
        seen.push(lock);
        draft.section("[[lock]]");
        if kind == "semaphore" {
            draft.line("kind = \"semaphore\"");
        }
        draft.guess(&format!("lock = \"{lock}\""), "by its name");
        if !image.function(try_lock).is_empty() {
            draft.guess(&format!("trylock = \"{try_lock}\""), "by its name; returns whether it succeeded");
        }
        match inner(image, unlock) {
            Some(inner) => draft.guess(&format!("unlock = \"{inner}\""), &format!("what {unlock} calls")),
            None => draft.guess(&format!("unlock = \"{unlock}\""), "by its name"),
        }
        let function = image.get(image.function(lock)[0]);
        let types = image.types();
        let block = image.subprogram(function).and_then(|subprogram| subprogram.parameters.first()).and_then(
            |local| match types.get(types.strip(local.ty)) {
                Type::Pointer { to, .. } => Some(types.strip(*to)),
                _ => None,
            },
        );
        if let Some(owner) = block.and_then(|block| member(image, block, &["owner", "holder"])) {
            draft.guess(&format!("owner = \"lock->{owner}\""), "a member of the lock");
        }
        if kind == "spin" {
            draft.line("spins = true");
            if let Some(held) = block.and_then(|block| member(image, block, &["locked", "held"])) {
                draft.guess(&format!("available = \"!lock->{held}\""), "a member of the lock");
            }
            let table = ["ptable", "proc_table", "thread_table"].iter().find(|name| {
                let ty = image.variable(name).map(|variable| variable.ty);
                ty.is_some_and(|ty| types.member(ty, "lock").is_some())
            });
            if let Some(table) = table {
                draft.guess(
                    &format!("scheduler = \"&{table}.lock\""),
                    "if it is held across a switch, and given back by whoever comes",
                );
            }
        }
    }
    if seen.is_empty() {
        draft.section("# [[lock]]");
        draft.missing("lock = \"…\"", "the function that takes a lock");
        draft.missing("unlock = \"…\"", "the function that releases it");
    }
}

//! A program under test: the description of its thread library applied to its file, on top of a kernel that
//! is trusted.
//!
//! The language is that of kernel descriptions; of its tables a library has those that speak of locks, heap,
//! panics, checks and what to leave out, the rest is the kernel's matter. Of the kernel's own hooks those for
//! locks and heap are dropped: what the kernel does still conflicts by the memory it touches, which is what
//! makes the order of two system calls count (Blum 2018 leaves the kernel's memory out altogether, and has a
//! system call to make up for some of it). Addresses of kernel and program do not overlap, so hooks of both
//! live in one table.

use super::resolve::Resolver;
use super::{Activity, Heap, HookEvent, Kernel, Lock, Tested};
use crate::elf::image::Image;
use crate::hooks::description::{Description, Problem, Tables};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::Trusted;

pub(super) fn with_program(
    kernel: &Kernel,
    description: &Description,
    program: &Arc<Image>,
    test: &str,
) -> Result<Arc<Kernel>, Vec<Problem>> {
    let mut resolver = Resolver::new(description, program, "program");
    let tables = &description.tables;
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    resolver.refuse_kernel_tables();
    resolver.check_definitions();
    resolver.activity(tables.functions.trusted.as_ref(), Activity::Trusted);
    let locks = locks(&mut resolver, tables, &base(test));
    let heaps = heaps(&mut resolver, tables);
    for sealed in &tables.sealed {
        let tests = &sealed.as_ref().tests;
        if tests.is_empty() || tests.contains(&base(test)) {
            resolver.activity(sealed.as_ref().functions.as_ref(), Activity::Sealed);
        }
    }
    resolver.panics();
    resolver.joins();
    let checks = resolver.checks();
    let ignored_code = resolver.code_ranges(tables.ignore.functions.as_ref());
    let ignored_names = resolver.ignored_names();
    let blocking_code = resolver.code_ranges(tables.functions.blocking.as_ref());
    let ignored_data = resolver.data_ranges(tables.ignore.symbols.as_ref());
    let raceless_code = resolver.code_ranges(tables.ignore.races.as_ref());
    let ignored_regions = resolver.ignored_regions();
    let (mut hooks, mut problems, cautions) = (resolver.hooks, resolver.problems, resolver.cautions);
    problems.sort();
    problems.dedup();
    if !problems.is_empty() {
        return Err(problems);
    }
    // What is not trusted to wait for another's end proves nothing by returning.
    let waits: Vec<_> =
        hooks.iter().filter(|hook| matches!(hook.event, HookEvent::Enter(Activity::Trusted))).collect();
    let waits: Vec<Arc<str>> = waits.into_iter().map(|hook| hook.name.clone()).collect();
    hooks.retain(|hook| !matches!(hook.event, HookEvent::Join { .. }) || waits.contains(&hook.name));
    let named = |test: fn(&HookEvent) -> bool| {
        let mut names: Vec<_> =
            hooks.iter().filter(|hook| test(&hook.event)).map(|hook| hook.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let sealed = named(|event| matches!(event, HookEvent::Enter(Activity::Sealed | Activity::Guarded)));
    let trusted =
        named(|event| matches!(event, HookEvent::EnterTrusted(_) | HookEvent::Enter(Activity::Trusted)));
    let of_kernel = kernel.hooks.iter().filter(|hook| !is_trusted_kernel_s(&hook.event)).cloned();
    let mut all = Kernel {
        hooks: of_kernel.chain(hooks).collect(),
        interrupts_as_lock: false,
        cautions: kernel.cautions.iter().cloned().chain(cautions).collect(),
        locks,
        heaps,
        checks,
        ignored_names,
        ignored_code: kernel.ignored_code.iter().cloned().chain(ignored_code).collect(),
        blocking_code: kernel.blocking_code.iter().cloned().chain(blocking_code).collect(),
        ignored_data: kernel.ignored_data.iter().cloned().chain(ignored_data).collect(),
        ignored_regions: kernel.ignored_regions.iter().cloned().chain(ignored_regions).collect(),
        raceless_code,
        console: kernel.console.iter().chain(&tables.console).cloned().collect(),
        tested: Some(Tested {
            image: program.clone(),
            library: Arc::from(tables.name.as_str()),
            sealed,
            trusted,
        }),
        entered: FxHashMap::default(),
        passed: FxHashMap::default(),
        ..kernel.clone()
    };
    all.index();
    Ok(Arc::new(all))
}

/// The library's locks, which are trusted unless the test is there to test them.
fn locks(resolver: &mut Resolver<'_>, tables: &Tables, test: &str) -> Vec<Lock> {
    let locks = tables.lock.iter().enumerate().map(|(index, lock)| {
        // The lock's own code: around the hooks that say what happens to the lock.
        let tested = lock.as_ref().tested_by.iter().any(|name| *name == test);
        let first = resolver.hooks.len();
        let resolved = resolver.lock(index, lock);
        if !tested {
            resolver.trust(first, Trusted::Lock);
        }
        Lock { under_test: tested, ..resolved }
    });
    locks.collect()
}

/// The library's heaps, and what is known of their code.
fn heaps(resolver: &mut Resolver<'_>, tables: &Tables) -> Vec<Heap> {
    let heaps = tables.heap.iter().enumerate().map(|(index, heap)| {
        let first = resolver.hooks.len();
        let resolved = resolver.heap(index, heap);
        if resolved.under_test {
            resolver.trust(first, Trusted::HeapUnderTest);
        } else if heap.as_ref().reentrant {
            resolver.trust(first, Trusted::Heap);
            resolver.seal(first, Activity::Sealed);
        } else {
            resolver.trust(first, Trusted::GuardedHeap);
            resolver.seal(first, Activity::Guarded);
        }
        resolved
    });
    heaps.collect()
}

/// Whether the event is of no use with a kernel that is trusted as a whole.
fn is_trusted_kernel_s(event: &HookEvent) -> bool {
    matches!(
        event,
        HookEvent::Enter(Activity::Trusted)
            | HookEvent::Leave(Activity::Trusted)
            | HookEvent::LockRequest { .. }
            | HookEvent::LockHeld { .. }
            | HookEvent::TryRequest { .. }
            | HookEvent::TryDone { .. }
            | HookEvent::UnlockBegin { .. }
            | HookEvent::UnlockEnd { .. }
            | HookEvent::Alloc { .. }
            | HookEvent::Free { .. }
    )
}

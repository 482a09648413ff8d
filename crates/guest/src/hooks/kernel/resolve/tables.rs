//! Tables of a description that kernels and libraries have alike: locks, heaps, tests, panics, checks.

use super::super::{Check, CommandLine, Heap, HeapId, HookEvent, Lock, LockClass, Region};
use super::{Resolver, Side, When};
use crate::hooks::description::{self as d, Description, Names};
use crate::hooks::expression::{Binding, Expression, Ty};
use std::sync::Arc;
use trace::PointSet;

impl<'a> Resolver<'a> {
    /// Whether the kernel has a function that makes locks of this kind ready.
    pub(super) fn lock_init(&mut self, lock: &d::Lock) -> bool {
        let Some(names) = &lock.init else { return false };
        let mut seen = false;
        for name in &names.as_ref().0 {
            let at = self.description.item(&names.span(), name);
            for function in self.function(name, at).unwrap_or_default() {
                let name = name.trim_end_matches('?');
                let leave = self.place_of(function, When::Leave, name, at);
                let Some(id) = self.at(lock.id.as_ref(), &leave, Some("arg0")) else { continue };
                let subclass =
                    lock.subclass.as_ref().and_then(|subclass| self.at(Some(subclass), &leave, None));
                self.add(HookEvent::LockInit { lock: id, subclass }, leave, None);
                seen = true;
            }
        }
        seen
    }

    fn lock_renewals(&mut self, lock: &d::Lock) {
        for hook in &lock.renew {
            let inner = hook.as_ref();
            for place in self.places(inner.on.as_ref(), &hook.span()) {
                let Some(renewed) = &inner.lock else {
                    let what = "'lock' is missing: which lock is given to another object, such as lock = \"&ret->lock\"";
                    self.problem(hook.span().start, what);
                    continue;
                };
                if let Some(lock) = self.at(Some(renewed), &place, None) {
                    self.add(HookEvent::LockRenew { lock }, place, inner.r#if.as_ref());
                }
            }
        }
    }

    pub(in super::super) fn lock(&mut self, index: usize, lock: &toml::Spanned<d::Lock>) -> Lock {
        let class = LockClass(index as u16);
        let (span, lock) = (lock.span(), lock.as_ref());
        if lock.lock.is_none() && lock.trylock.is_none() {
            self.problem(span.start, "a lock needs 'lock' or 'trylock': the function that takes it");
        }
        if lock.unlock.is_none() {
            self.problem(span.start, "a lock needs 'unlock': the function that releases it");
        }
        // A lock that is given away where it is asked for is another one by then.
        self.lock_renewals(lock);
        let mut ty = None;
        let mut points_to = None;
        let sides = [
            (lock.lock.as_ref(), Side::Lock),
            (lock.trylock.as_ref(), Side::Try),
            (lock.unlock.as_ref(), Side::Unlock),
        ];
        for (names, side) in sides {
            let Some(names) = names else { continue };
            for name in &names.as_ref().0 {
                let at = self.description.item(&names.span(), name);
                for function in self.function(name, at).unwrap_or_default() {
                    let name = name.trim_end_matches('?');
                    let enter = self.place_of(function, When::Enter, name, at);
                    let leave = self.place_of(function, When::Leave, name, at);
                    let Some(id) = self.at(lock.id.as_ref(), &enter, Some("arg0")) else { continue };
                    ty.get_or_insert_with(|| id.ty().clone());
                    points_to = points_to.or(id.points_to());
                    let (begin, end) = match side {
                        Side::Lock => (
                            HookEvent::LockRequest { class, lock: id.clone() },
                            HookEvent::LockHeld { class, lock: id },
                        ),
                        Side::Try => {
                            let acquired = self.at(lock.acquired.as_ref(), &leave, Some("ret"));
                            let Some(acquired) = acquired else { continue };
                            (
                                HookEvent::TryRequest { class, lock: id.clone() },
                                HookEvent::TryDone { class, lock: id, acquired },
                            )
                        }
                        Side::Unlock => (
                            HookEvent::UnlockBegin { class, lock: id.clone() },
                            HookEvent::UnlockEnd { class, lock: id },
                        ),
                    };
                    self.add(begin, enter, None);
                    self.add(end, leave, None);
                }
            }
        }
        let init_seen = self.lock_init(lock);
        let ty = ty.unwrap_or(Ty::Integer { size: 4, signed: false });
        let mut binding = vec![Binding { name: "lock", ty }];
        binding.extend(self.thread_binding());
        Lock {
            name: Arc::from(lock.name.as_deref().unwrap_or("lock")),
            kind: lock.kind,
            spins: lock.spins,
            shared: lock.shared,
            recursive: lock.recursive,
            init_seen,
            bytes: points_to
                .and_then(|ty| self.image.types().size(ty))
                .and_then(|size| size.try_into().ok())
                .unwrap_or(0),
            owner: self.anywhere(lock.owner.as_ref(), &binding),
            available: self.anywhere(lock.available.as_ref(), &binding),
            scheduler: self.anywhere(lock.scheduler.as_ref(), &[]),
            under_test: false,
            points_to,
        }
    }

    pub(in super::super) fn heap(&mut self, index: usize, heap: &toml::Spanned<d::Heap>) -> Heap {
        let id = HeapId(index as u16);
        let (span, heap) = (heap.span(), heap.as_ref());
        if heap.alloc.is_empty() || heap.free.is_empty() {
            self.problem(span.start, "a heap needs 'alloc' and 'free' hooks");
        }
        for hook in &heap.alloc {
            let inner = hook.as_ref();
            for place in self.places(inner.on.as_ref(), &hook.span()) {
                if inner.size.is_none() {
                    self.problem(
                        hook.span().start,
                        "'size' is missing: how many bytes, such as size = \"arg0\"",
                    );
                    continue;
                }
                let address = self.at(inner.address.as_ref(), &place, Some("ret"));
                let size = self.at(inner.size.as_ref(), &place, None);
                if let (Some(address), Some(size)) = (address, size) {
                    self.add(HookEvent::Alloc { heap: id, address, size }, place, inner.r#if.as_ref());
                }
            }
        }
        for hook in &heap.free {
            let inner = hook.as_ref();
            for place in self.places(inner.on.as_ref(), &hook.span()) {
                if let Some(address) = self.at(inner.address.as_ref(), &place, Some("arg0")) {
                    self.add(HookEvent::Free { heap: id, address }, place, inner.r#if.as_ref());
                }
            }
        }
        let heaps = &self.description.tables.heap;
        let inside = heap.inside.as_ref().and_then(|outer| {
            let found = heaps.iter().position(|other| other.as_ref().name.as_deref() == Some(outer.as_ref()));
            if found.is_none() || found == Some(index) {
                let message = format!("there is no other heap with the name '{}'", outer.as_ref());
                self.problem(outer.span().start, message);
            }
            found.map(|found| HeapId(found as u16))
        });
        let name = Arc::from(heap.name.as_deref().unwrap_or("heap"));
        Heap { name, inside, under_test: heap.under_test }
    }

    pub(super) fn test_hooks(&mut self, hooks: &[toml::Spanned<d::TestHook>], event: &HookEvent) {
        for hook in hooks {
            for place in self.places(hook.as_ref().on.as_ref(), &hook.span()) {
                self.add(event.clone(), place, hook.as_ref().r#if.as_ref());
            }
        }
    }

    pub(super) fn points(&mut self, sets: &[toml::Spanned<String>]) -> Vec<PointSet> {
        let mut points = Vec::new();
        for set in sets {
            match set.as_ref().parse() {
                Ok(set) => points.push(set),
                Err(error) => self.problem(set.span().start, format!("'{}': {error}", set.as_ref())),
            }
        }
        points
    }

    pub(super) fn command_line(
        &mut self,
        command_line: &toml::Spanned<d::CommandLine>,
    ) -> Option<CommandLine> {
        let (span, table) = (command_line.span(), command_line.as_ref());
        for place in self.places(table.on.as_ref(), &span) {
            self.add(HookEvent::CommandLine, place, None);
        }
        if table.words.is_none() || table.length.is_none() {
            self.problem(span.start, "a command line needs 'words' and 'length': where it lies and its room");
        }
        Some(CommandLine {
            words: self.anywhere(table.words.as_ref(), &[])?,
            length: self.anywhere(table.length.as_ref(), &[])?,
            count: self.anywhere(table.count.as_ref(), &[]),
        })
    }

    pub(in super::super) fn panics(&mut self) {
        let description: &'a Description = self.description;
        for panic in &description.tables.panic {
            for place in self.places(panic.as_ref().on.as_ref(), &panic.span()) {
                let message = self.at(panic.as_ref().message.as_ref(), &place, None);
                self.add(HookEvent::Panic { message }, place, panic.as_ref().r#if.as_ref());
            }
        }
    }

    pub(super) fn faults(
        &mut self,
        faults: &[toml::Spanned<d::Fault>],
        event: impl Fn(Option<Expression>, Option<Expression>) -> HookEvent,
    ) {
        for fault in faults {
            for place in self.places(fault.as_ref().on.as_ref(), &fault.span()) {
                let vector = self.at(fault.as_ref().vector.as_ref(), &place, None);
                let address = self.at(fault.as_ref().address.as_ref(), &place, None);
                self.add(event(vector, address), place, fault.as_ref().r#if.as_ref());
            }
        }
    }

    pub(in super::super) fn checks(&mut self) -> Vec<Check> {
        let description: &'a Description = self.description;
        let mut checks = Vec::new();
        for check in &description.tables.check {
            let Some(text) = &check.holds else {
                self.missing("check.holds", "what must be true when the test is over");
                continue;
            };
            let condition = self.anywhere(check.r#if.as_ref(), &[]);
            // What does not count here need not make sense here.
            if condition.as_ref().is_some_and(|condition| condition.constant() == Some(0)) {
                continue;
            }
            let name = check.name.clone().unwrap_or_else(|| text.as_ref().clone());
            let line = self.description.line(text.span().start);
            if let Some(holds) = self.anywhere(Some(text), &[]) {
                checks.push(Check { name, condition, holds, line });
            }
        }
        checks
    }

    /// Names of the functions and variables that are ignored and that there are.
    pub(in super::super) fn ignored_names(&self) -> Vec<Arc<str>> {
        let names = |names: Option<&Names>| names.map_or_else(Vec::new, |names| names.as_ref().0.clone());
        let ignore = &self.description.tables.ignore;
        let functions = names(ignore.functions.as_ref()).into_iter().chain(names(ignore.symbols.as_ref()));
        let plain = functions.map(|name| name.trim_end_matches('?').to_owned());
        let exists = |name: &String| {
            !self.image.ranges(name).is_empty()
                || !self.image.variables(name).is_empty()
                || self.image.data_range(name).is_some()
        };
        plain.filter(exists).map(Arc::from).collect()
    }

    pub(in super::super) fn ignored_regions(&mut self) -> Vec<Region> {
        let description: &'a Description = self.description;
        let regions = &description.tables.ignore.regions;
        regions.iter().filter_map(|region| self.region(Some(region), &[])).collect()
    }

    /// Where the end of another thread is known.
    pub(in super::super) fn joins(&mut self) {
        let description: &'a Description = self.description;
        self.thread_hooks(&description.tables.threads.join, |thread| HookEvent::Join { thread });
    }

    /// Refuses tables that make no sense in a library's description.
    pub(in super::super) fn refuse_kernel_tables(&mut self) {
        let tables = &self.description.tables;
        let has = [
            ("threads", tables.threads.current.is_some() || !tables.threads.create.is_empty()),
            ("runnable", tables.runnable.when.is_some() || !tables.runnable.add.is_empty()),
            ("preemption", tables.preemption.allowed.is_some()),
            ("timer", tables.timer.vector.is_some()),
            ("idle", tables.idle.thread.is_some() || tables.idle.is.is_some() || tables.idle.when.is_some()),
            ("test", !tables.test.ready.is_empty() || !tables.test.start.is_empty()),
            ("user", tables.user.region.is_some() || !tables.user.exec.is_empty()),
        ];
        for (table, _) in has.into_iter().filter(|(_, has)| *has) {
            let at = self.description.table(table);
            self.problem(at, format!("'{table}' belongs to the kernel's description, not to a library's"));
        }
    }
}

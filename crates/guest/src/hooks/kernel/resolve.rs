//! From a description and an image to a [`Kernel`], collecting every problem on the way.

use super::{
    Activity, Check, Event, Heap, HeapId, Hook, Kernel, Lines, Lock, LockClass, Place, Region, Runnable,
    Test, Threads,
};
use crate::elf::code;
use crate::elf::image::{FunctionId, Image};
use crate::elf::nearest::suggestion;
use crate::hooks::description::{self as d, Description, Input, Names, Problem, Text};
use crate::hooks::expression::{self, Binding, Expression, Inputs, Scope, Ty};
use crate::state::{Pieces, Registers};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{PointSet, Trusted, VirtAddr};

pub(super) fn resolve(description: &Description, image: &Arc<Image>) -> Result<Arc<Kernel>, Vec<Problem>> {
    let mut resolver = Resolver::new(description, image, "kernel");
    let kernel = resolver.kernel();
    let mut problems = resolver.problems;
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(Arc::new(kernel)) } else { Err(problems) }
}

pub(super) struct Resolver<'a> {
    description: &'a Description,
    image: &'a Arc<Image>,
    /// How messages call the image.
    whose: &'static str,
    definitions: BTreeMap<String, String>,
    pub problems: Vec<Problem>,
    pub cautions: Vec<Problem>,
    pub hooks: Vec<Hook>,
    /// The type of a thread, from `threads.current`.
    thread: Option<Ty>,
}

/// A place with the function its expressions may refer to.
struct Resolved {
    place: Place,
    function: Option<FunctionId>,
    at: Option<VirtAddr>,
    name: Arc<str>,
    line: usize,
}

impl Resolved {
    fn leaves(&self) -> bool {
        matches!(self.place, Place::Leave { .. })
    }
}

/// When a function list means "entered" and when "left".
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Enter,
    Leave,
}

/// What a function does to a lock.
#[derive(Clone, Copy)]
enum Side {
    Lock,
    Try,
    Unlock,
}

impl<'a> Resolver<'a> {
    pub fn new(description: &'a Description, image: &'a Arc<Image>, whose: &'static str) -> Self {
        let definitions = &description.tables.define;
        let definitions =
            definitions.iter().map(|(name, value)| (name.clone(), value.as_ref().0.clone())).collect();
        let (problems, cautions, hooks) = (Vec::new(), Vec::new(), Vec::new());
        Self { description, image, whose, definitions, problems, cautions, hooks, thread: None }
    }

    fn problem(&mut self, at: usize, message: impl Into<String>) {
        self.problems.push(self.description.problem(at, message));
    }

    /// Adds a problem for something that a description cannot do without, at its place.
    fn missing(&mut self, key: &str, why: &str) {
        let table = key.split('.').next().unwrap_or(key);
        let at = self.description.table(table);
        self.problem(at, format!("'{key}' is missing: {why}"));
    }

    fn expression(&mut self, text: &Text, scope: &Scope<'_>) -> Option<Expression> {
        match Expression::compile(text.as_ref(), scope) {
            Ok(expression) => Some(expression),
            Err(expression::Problem { span, message }) => {
                let at = self.description.inside(&text.span(), span.start);
                self.problem(at, message);
                None
            }
        }
    }

    /// An expression that depends on no place, with names bound.
    fn anywhere(&mut self, text: Option<&Text>, bindings: &[Binding]) -> Option<Expression> {
        if self.thread_unknown() && bindings.iter().any(|binding| binding.name == "t") {
            return None;
        }
        let definitions = self.definitions.clone();
        let scope = Scope {
            image: self.image,
            function: None,
            returns: false,
            at: None,
            bindings,
            definitions: &definitions,
        };
        self.expression(text?, &scope)
    }

    fn at(&mut self, text: Option<&Text>, place: &Resolved, default: Option<&str>) -> Option<Expression> {
        let definitions = self.definitions.clone();
        let function = place.function.map(|id| self.image.get(id));
        let scope = Scope {
            image: self.image,
            function,
            returns: place.leaves(),
            at: place.at,
            bindings: &[],
            definitions: &definitions,
        };
        match (text, default) {
            (Some(text), _) => self.expression(text, &scope),
            (None, Some(default)) => match Expression::compile(default, &scope) {
                Ok(expression) => Some(expression),
                Err(problem) => {
                    let message = format!("at '{}': {}; say what it is", place.name, problem.message);
                    self.problems.push(Problem { line: place.line, ..self.description.problem(0, message) });
                    None
                }
            },
            (None, None) => None,
        }
    }

    /// Whether the expression for threads is wrong, so that what builds on it would only repeat that.
    fn thread_unknown(&self) -> bool {
        self.thread.is_none() && self.description.tables.threads.current.is_some()
    }

    fn thread_binding(&self) -> Vec<Binding> {
        let ty = self.thread.clone().unwrap_or(Ty::Integer { size: 4, signed: true });
        vec![Binding { name: "t", ty }]
    }

    /// Whether the description calls a function trusted, whatever the call.
    fn trusts(&self, name: &str) -> bool {
        let trusted = self.description.tables.functions.trusted.as_ref();
        trusted
            .is_some_and(|names| names.as_ref().0.iter().any(|trusted| trusted.trim_end_matches('?') == name))
    }

    /// The functions of a name that can be entered, or a problem. `None` with no problem: excused by a `?`.
    fn function(&mut self, name: &str, at: usize) -> Option<Vec<FunctionId>> {
        let (name, optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let found = self.image.function(name);
        // Into itself it is inlined only after it has been entered; and what is trusted loses nothing inside of what is.
        let trusted = self.trusts(name);
        let around = self.image.inlined_at(name).into_iter().find_map(|at| {
            let function = &self.image.get(self.image.function_at(at)?).name;
            (**function != *name && !(trusted && self.trusts(function))).then(|| function.clone())
        });
        const ADVICE: &str = "name a function around it, or build with __attribute__((noinline)) on it";
        if let (Some(function), false) = (&around, found.is_empty()) {
            let message = format!(
                "'{name}' was inlined where it is called in '{function}', so that call is not seen; {ADVICE}"
            );
            let caution = self.description.problem(at, message);
            self.cautions.push(caution);
        }
        if !found.is_empty() {
            return Some(found.to_vec());
        }
        if let Some(function) = around {
            self.problem(
                at,
                format!(
                    "'{name}' exists only inlined (for instance in '{function}'), so it is never entered; {ADVICE}"
                ),
            );
        } else if !optional && self.image.inlined_at(name).is_empty() {
            let near = suggestion(&self.image.nearest_functions(name));
            self.problem(at, format!("the {} has no function '{name}'{near}", self.whose));
        }
        None
    }

    /// The place of one function: functions of one name may get their arguments in different ways.
    fn place_of(&mut self, function: FunctionId, when: When, name: &str, at: usize) -> Resolved {
        let image = self.image;
        let entries = vec![image.get(function).start];
        let place = match when {
            When::Enter => Place::Enter { entries },
            When::Leave => {
                let code::Leaves { returns, interrupt_returns, tail_calls } = image.leaves(function);
                Place::Leave { entries, returns, interrupt_returns, tail_calls }
            }
        };
        let line = self.description.line(at);
        Resolved { place, function: Some(function), at: None, name: Arc::from(name), line }
    }

    /// The places that an `on` names.
    fn places(&mut self, on: Option<&Names>, table: &Range<usize>) -> Vec<Resolved> {
        let Some(on) = on else {
            self.problem(table.start, "'on' is missing: say where, such as on = \"enter FUNCTION\"");
            return Vec::new();
        };
        let mut places = Vec::new();
        for text in &on.as_ref().0 {
            let at = self.description.item(&on.span(), text);
            let (verb, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
            let rest = rest.trim();
            match verb {
                "enter" | "leave" if !rest.is_empty() => {
                    let when = if verb == "enter" { When::Enter } else { When::Leave };
                    for function in self.function(rest, at).unwrap_or_default() {
                        places.push(self.place_of(function, when, rest.trim_end_matches('?'), at));
                    }
                }
                "line" if !rest.is_empty() => places.extend(self.line_place(rest, at)),
                _ => {
                    self.problem(
                        at,
                        format!("'{text}' is not a place: write \"enter FUNCTION\", \"leave FUNCTION\" or \"line FILE:NUMBER\""),
                    );
                }
            }
        }
        places
    }

    fn line_place(&mut self, text: &str, at: usize) -> Option<Resolved> {
        let parsed = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?)));
        let Some((file, line)) = parsed else {
            self.problem(at, format!("'{text}' is not a line: write \"line FILE:NUMBER\""));
            return None;
        };
        let addresses = self.image.lines(file, line);
        let Some(first) = addresses.first().copied() else {
            let message = match self.image.nearest_lines(file, line).first() {
                Some(near) => {
                    format!("no code comes from line {line} of {file}; the nearest line with code is {near}")
                }
                None => {
                    format!("the {} has no source file '{file}' with line information", self.whose)
                }
            };
            self.problem(at, message);
            return None;
        };
        let function = self.image.function_at(first);
        let line = self.description.line(at);
        Some(Resolved {
            place: Place::At { addresses },
            function,
            at: Some(first),
            name: Arc::from(text),
            line,
        })
    }

    fn add(&mut self, event: Event, place: Resolved, condition: Option<&Text>) {
        let condition = match condition {
            Some(text) => match self.at(Some(text), &place, None) {
                // What is for another build of the kernel is not there in this one.
                Some(condition) if condition.constant() == Some(0) => return,
                Some(condition) => Some(condition),
                None => return,
            },
            None => None,
        };
        let all = event.expressions().into_iter().chain(&condition).map(Expression::homes);
        let arguments = all.max_by_key(|homes| homes.len()).unwrap_or(&[]).to_vec();
        self.hooks.push(Hook {
            event,
            place: place.place,
            condition,
            arguments,
            name: place.name,
            line: place.line,
        });
    }

    fn region(&mut self, region: Option<&d::Region>, bindings: &[Binding]) -> Option<Region> {
        let region = region?;
        if region.from.is_none() || region.to.is_none() {
            let at = region.from.as_ref().or(region.to.as_ref()).map_or(0, |text| text.span().start);
            self.problem(at, "a region needs 'from' and 'to'");
            return None;
        }
        let from = self.anywhere(region.from.as_ref(), bindings);
        let to = self.anywhere(region.to.as_ref(), bindings);
        Some(Region { from: from?, to: to? })
    }

    fn thread_hooks(&mut self, hooks: &[toml::Spanned<d::ThreadHook>], event: impl Fn(Expression) -> Event) {
        for hook in hooks {
            for place in self.places(hook.as_ref().on.as_ref(), &hook.span()) {
                if hook.as_ref().thread.is_none() && self.thread_unknown() {
                    continue;
                }
                let current =
                    self.description.tables.threads.current.as_ref().map(|text| text.as_ref().as_str());
                if let Some(thread) = self.at(hook.as_ref().thread.as_ref(), &place, current) {
                    self.add(event(thread), place, hook.as_ref().r#if.as_ref());
                }
            }
        }
    }

    /// Adds hooks at both ends of each function of a list.
    pub fn activity(&mut self, names: Option<&Names>, activity: Activity) {
        self.stretches(names, &[Event::Enter(activity), Event::Leave(activity)]);
    }

    /// What happens where these functions are entered and where they are left.
    fn stretches(&mut self, names: Option<&Names>, [enters, leaves]: &[Event; 2]) {
        let Some(names) = names else { return };
        for name in &names.as_ref().0 {
            let at = self.description.item(&names.span(), name);
            let (name, condition) = match name.split_once(" if ") {
                Some((name, condition)) => {
                    let from = at + name.len() + " if ".len();
                    (name.trim(), Some(Text::new(from..from + condition.len(), condition.to_string())))
                }
                None => (name.trim(), None),
            };
            let Some(functions) = self.function(name, at) else { continue };
            let name = name.trim_end_matches('?');
            for function in functions {
                let enter = self.place_of(function, When::Enter, name, at);
                self.add(enters.clone(), enter, condition.as_ref());
                let leave = self.place_of(function, When::Leave, name, at);
                self.add(leaves.clone(), leave, None);
            }
        }
    }

    fn lock_init(&mut self, lock: &d::Lock) {
        let Some(names) = &lock.init else { return };
        for name in &names.as_ref().0 {
            let at = self.description.item(&names.span(), name);
            for function in self.function(name, at).unwrap_or_default() {
                let name = name.trim_end_matches('?');
                let leave = self.place_of(function, When::Leave, name, at);
                let Some(id) = self.at(lock.id.as_ref(), &leave, Some("arg0")) else { continue };
                let subclass =
                    lock.subclass.as_ref().and_then(|subclass| self.at(Some(subclass), &leave, None));
                self.add(Event::LockInit { lock: id, subclass }, leave, None);
            }
        }
    }

    pub fn lock(&mut self, index: usize, lock: &toml::Spanned<d::Lock>) -> Lock {
        let class = LockClass(index as u16);
        let (span, lock) = (lock.span(), lock.as_ref());
        if lock.lock.is_none() && lock.trylock.is_none() {
            self.problem(span.start, "a lock needs 'lock' or 'trylock': the function that takes it");
        }
        if lock.unlock.is_none() {
            self.problem(span.start, "a lock needs 'unlock': the function that releases it");
        }
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
                            Event::LockRequest { class, lock: id.clone() },
                            Event::LockHeld { class, lock: id },
                        ),
                        Side::Try => {
                            let acquired = self.at(lock.acquired.as_ref(), &leave, Some("ret"));
                            let Some(acquired) = acquired else { continue };
                            (
                                Event::TryRequest { class, lock: id.clone() },
                                Event::TryDone { class, lock: id, acquired },
                            )
                        }
                        Side::Unlock => (
                            Event::UnlockBegin { class, lock: id.clone() },
                            Event::UnlockEnd { class, lock: id },
                        ),
                    };
                    self.add(begin, enter, None);
                    self.add(end, leave, None);
                }
            }
        }
        self.lock_init(lock);
        let ty = ty.unwrap_or(Ty::Integer { size: 4, signed: false });
        let mut binding = vec![Binding { name: "lock", ty }];
        binding.extend(self.thread_binding());
        Lock {
            name: Arc::from(lock.name.as_deref().unwrap_or("lock")),
            kind: lock.kind,
            spins: lock.spins,
            shared: lock.shared,
            recursive: lock.recursive,
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

    pub fn heap(&mut self, index: usize, heap: &toml::Spanned<d::Heap>) -> Heap {
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
                    self.add(Event::Alloc { heap: id, address, size }, place, inner.r#if.as_ref());
                }
            }
        }
        for hook in &heap.free {
            let inner = hook.as_ref();
            for place in self.places(inner.on.as_ref(), &hook.span()) {
                if let Some(address) = self.at(inner.address.as_ref(), &place, Some("arg0")) {
                    self.add(Event::Free { heap: id, address }, place, inner.r#if.as_ref());
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

    fn test_hooks(&mut self, hooks: &[toml::Spanned<d::TestHook>], event: &Event) {
        for hook in hooks {
            for place in self.places(hook.as_ref().on.as_ref(), &hook.span()) {
                self.add(event.clone(), place, hook.as_ref().r#if.as_ref());
            }
        }
    }

    fn points(&mut self, sets: &[toml::Spanned<String>]) -> Vec<PointSet> {
        let mut points = Vec::new();
        for set in sets {
            match set.as_ref().parse() {
                Ok(set) => points.push(set),
                Err(error) => self.problem(set.span().start, format!("'{}': {error}", set.as_ref())),
            }
        }
        points
    }

    fn command_line(&mut self, command_line: &toml::Spanned<d::CommandLine>) -> Option<super::CommandLine> {
        let (span, table) = (command_line.span(), command_line.as_ref());
        for place in self.places(table.on.as_ref(), &span) {
            self.add(Event::CommandLine, place, None);
        }
        if table.words.is_none() || table.length.is_none() {
            self.problem(span.start, "a command line needs 'words' and 'length': where it lies and its room");
        }
        Some(super::CommandLine {
            words: self.anywhere(table.words.as_ref(), &[])?,
            length: self.anywhere(table.length.as_ref(), &[])?,
            count: self.anywhere(table.count.as_ref(), &[]),
        })
    }

    pub fn code_ranges(&mut self, names: Option<&Names>) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let Some(names) = names else { return ranges };
        for name in &names.as_ref().0 {
            let at = self.description.item(&names.span(), name);
            let found = self.image.ranges(name.trim_end_matches('?'));
            if found.is_empty() && !name.ends_with('?') {
                let near = suggestion(&self.image.nearest_functions(name));
                self.problem(at, format!("the {} has no function '{name}'{near}", self.whose));
            }
            ranges.extend(found);
        }
        ranges
    }

    /// Where only ticks are handled: functions that handle one under a condition do other things too.
    fn timer_code(&self) -> Arc<[Range<u64>]> {
        let names = self.description.tables.functions.timer.iter().flat_map(|names| &names.as_ref().0);
        names.flat_map(|name| self.image.ranges(name.trim_end_matches('?'))).collect()
    }

    pub fn data_ranges(&mut self, names: Option<&Names>) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let Some(names) = names else { return ranges };
        for name in &names.as_ref().0 {
            let at = self.description.item(&names.span(), name);
            let plain = name.trim_end_matches('?');
            let statics: Vec<Range<u64>> = self
                .image
                .variables(plain)
                .iter()
                .map(|variable| {
                    let size = self.image.types().size(variable.ty).unwrap_or(1).max(1);
                    variable.address..variable.address.saturating_add(size)
                })
                .collect();
            if !statics.is_empty() {
                ranges.extend(statics);
            } else if let Some(range) = self.image.data_range(plain) {
                ranges.push(range);
            } else if plain.len() == name.len() {
                let near = suggestion(&self.image.nearest_values(name));
                self.problem(at, format!("the {} has no variable '{name}'{near}", self.whose));
            }
        }
        ranges
    }

    pub fn check_definitions(&mut self) {
        let description: &'a Description = self.description;
        for (name, value) in &description.tables.define {
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.problem(
                    value.span().start,
                    format!("'{name}' is not a name that an expression can use"),
                );
            }
        }
    }

    pub fn panics(&mut self) {
        let description: &'a Description = self.description;
        for panic in &description.tables.panic {
            for place in self.places(panic.as_ref().on.as_ref(), &panic.span()) {
                let message = self.at(panic.as_ref().message.as_ref(), &place, None);
                self.add(Event::Panic { message }, place, panic.as_ref().r#if.as_ref());
            }
        }
    }

    fn faults(
        &mut self,
        faults: &[toml::Spanned<d::Fault>],
        event: impl Fn(Option<Expression>, Option<Expression>) -> Event,
    ) {
        for fault in faults {
            for place in self.places(fault.as_ref().on.as_ref(), &fault.span()) {
                let vector = self.at(fault.as_ref().vector.as_ref(), &place, None);
                let address = self.at(fault.as_ref().address.as_ref(), &place, None);
                self.add(event(vector, address), place, fault.as_ref().r#if.as_ref());
            }
        }
    }

    pub fn checks(&mut self) -> Vec<Check> {
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

    pub fn ignored_regions(&mut self) -> Vec<Region> {
        let description: &'a Description = self.description;
        let regions = &description.tables.ignore.regions;
        regions.iter().filter_map(|region| self.region(Some(region), &[])).collect()
    }

    /// The functions that the hooks from `first` on are at.
    fn functions_of(&self, first: usize) -> Vec<FunctionId> {
        let mut functions: Vec<FunctionId> = Vec::new();
        for hook in &self.hooks[first..] {
            if let Place::Enter { entries } | Place::Leave { entries, .. } = &hook.place {
                functions.extend(entries.iter().filter_map(|entry| self.image.function_at(*entry)));
            }
        }
        functions.sort_unstable();
        functions.dedup();
        functions
    }

    /// Adds events where the functions of the hooks from `first` on are entered and left.
    fn around(&mut self, first: usize, [enters, leaves]: [Event; 2]) {
        for function in self.functions_of(first) {
            let name: Arc<str> = self.image.get(function).name.clone();
            let [enter, leave] =
                [When::Enter, When::Leave].map(|when| self.place_of(function, when, &name, 0));
            self.add(enters.clone(), enter, None);
            self.add(leaves.clone(), leave, None);
        }
    }

    /// Trusts the functions of the hooks from `first` on.
    pub fn trust(&mut self, first: usize, code: Trusted) {
        self.around(first, [Event::EnterTrusted(code), Event::LeaveTrusted(code)]);
    }

    /// No preemption is tried in them, or none under a lock.
    pub fn seal(&mut self, first: usize, activity: Activity) {
        self.around(first, [Event::Enter(activity), Event::Leave(activity)]);
    }

    /// Where the end of another thread is known.
    pub fn joins(&mut self) {
        let description: &'a Description = self.description;
        self.thread_hooks(&description.tables.threads.join, |thread| Event::Join { thread });
    }

    /// Refuses tables that make no sense in a library's description.
    pub fn refuse_kernel_tables(&mut self) {
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

    fn kernel(&mut self) -> Kernel {
        let description: &'a Description = self.description;
        let tables = &description.tables;
        self.check_definitions();

        let current = self.anywhere(tables.threads.current.as_ref(), &[]);
        self.thread = current.as_ref().map(|current| current.ty().clone());
        if !tables.annotations && tables.threads.current.is_none() {
            self.missing(
                "threads.current",
                "an expression for the thread that runs, such as \"current->tid\"",
            );
        }
        let bindings = self.thread_binding();
        let threads = Threads {
            id: self.anywhere(tables.threads.id.as_ref(), &bindings),
            name: self.anywhere(tables.threads.name.as_ref(), &bindings),
            existing: tables.threads.existing.as_ref().map_or_else(Vec::new, |names| self.list(names)),
            stack_pointer: self.anywhere(tables.threads.stack_pointer.as_ref(), &bindings),
            current,
        };
        if let Some(begin) = &tables.threads.begin {
            for place in self.places(Some(begin), &begin.span()) {
                self.add(Event::Begin, place, None);
            }
        }
        self.thread_hooks(&tables.threads.create, |thread| Event::Create { thread });
        self.thread_hooks(&tables.threads.exit, |thread| Event::Exit { thread });
        if !tables.annotations && tables.threads.create.is_empty() {
            self.missing("threads.create", "a hook for the creation of threads");
        }

        let runnable = &tables.runnable;
        let by_queue = !runnable.add.is_empty() || !runnable.remove.is_empty();
        let runnable = match &runnable.when {
            Some(when) => {
                if by_queue {
                    self.problem(
                        when.span().start,
                        "runnable is told by 'when' or by 'add' and 'remove', not by both",
                    );
                }
                match self.anywhere(Some(when), &bindings) {
                    Some(when) => Runnable::State(when),
                    None => Runnable::Annotated,
                }
            }
            None if by_queue => {
                if runnable.add.is_empty() || runnable.remove.is_empty() {
                    self.missing("runnable.add and runnable.remove", "a run queue is told by both");
                }
                self.thread_hooks(&runnable.add, |thread| Event::QueueAdd { thread });
                self.thread_hooks(&runnable.remove, |thread| Event::QueueRemove { thread });
                Runnable::Queue { current: self.anywhere(runnable.current.as_ref(), &bindings) }
            }
            None => {
                if !tables.annotations {
                    self.missing(
                        "runnable.when",
                        "when thread t can run, such as \"t->state == READY\" (or runnable.add and runnable.remove)",
                    );
                }
                Runnable::Annotated
            }
        };

        let functions = &tables.functions;
        self.activity(functions.timer.as_ref(), Activity::Timer);
        self.activity(functions.interrupt.as_ref(), Activity::Interrupt);
        self.activity(functions.switch.as_ref(), Activity::Switch);
        self.activity(functions.r#yield.as_ref(), Activity::Yield);
        self.activity(functions.sleep.as_ref(), Activity::Sleep);
        self.activity(functions.device.as_ref(), Activity::Device);
        self.activity(functions.idle.as_ref(), Activity::Idle);
        self.activity(functions.trusted.as_ref(), Activity::Trusted);
        let reads = [Event::EnterTrusted(Trusted::ReadsFreed), Event::LeaveTrusted(Trusted::ReadsFreed)];
        self.stretches(tables.ignore.freed_reads.as_ref(), &reads);
        if let Some(ends) = &functions.switch_ends {
            for place in self.places(Some(ends), &ends.span()) {
                self.add(Event::SwitchEnd, place, None);
            }
        }
        if !tables.annotations && functions.timer.is_none() {
            self.missing("functions.timer", "the function that handles a tick of the timer");
        }
        if !tables.annotations && functions.switch.is_none() {
            self.missing("functions.switch", "the function that changes from one thread to another");
        }

        let locks = tables.lock.iter().enumerate().map(|(index, lock)| self.lock(index, lock)).collect();
        let mut tested_code = Vec::new();
        let heaps = tables.heap.iter().enumerate().map(|(index, heap)| {
            let first = self.hooks.len();
            let heap = self.heap(index, heap);
            if heap.under_test {
                let functions = self.functions_of(first);
                let ranges = |function| self.image.ranges(&self.image.get(function).name);
                tested_code.extend(functions.into_iter().flat_map(ranges));
                self.trust(first, Trusted::HeapUnderTest);
            } else {
                self.around(first, [Event::Enter(Activity::Trusted), Event::Leave(Activity::Trusted)]);
            }
            heap
        });
        let heaps = heaps.collect();
        let mut ignored_code = self.code_ranges(tables.ignore.functions.as_ref());
        ignored_code.retain(|range| !tested_code.contains(range));
        self.panics();
        self.faults(&tables.fault, |vector, address| Event::Fault { vector, address });
        let test = &tables.test;
        self.test_hooks(&test.ready, &Event::Ready);
        self.test_hooks(&test.start, &Event::TestStart);
        self.test_hooks(&test.end, &Event::TestEnd);
        self.test_hooks(&test.over, &Event::TestOver);
        let command_line = test.command_line.as_ref().and_then(|table| self.command_line(table));
        let by_hand = matches!(test.input, Input::Keyboard | Input::Serial);
        if !tables.annotations && by_hand && test.ready.is_empty() {
            self.missing(
                "test.ready",
                "where the kernel waits for input, such as [{ on = \"enter readline\" }]",
            );
        }
        for call in &tables.user.system_call {
            for place in self.places(call.as_ref().on.as_ref(), &call.span()) {
                if let Some(number) = self.at(call.as_ref().number.as_ref(), &place, Some("arg0")) {
                    let from = self.at(call.as_ref().from.as_ref(), &place, None);
                    self.add(Event::SystemCall { number, from }, place, call.as_ref().r#if.as_ref());
                }
            }
        }
        for exec in &tables.user.exec {
            for place in self.places(exec.as_ref().on.as_ref(), &exec.span()) {
                if let Some(program) = self.at(exec.as_ref().program.as_ref(), &place, Some("string(arg0)")) {
                    self.add(Event::Exec { program }, place, exec.as_ref().r#if.as_ref());
                }
            }
        }
        self.test_hooks(&tables.user.exit, &Event::ProgramExit);
        self.test_hooks(&tables.user.end, &Event::ProgramEnd);
        self.test_hooks(&tables.user.r#return, &Event::ReturnToUser);
        self.faults(&tables.user.fault, |vector, address| Event::ProgramFault { vector, address });
        let checks = self.checks();
        let mut kernel = Kernel {
            name: Arc::from(tables.name.as_str()),
            image: self.image.clone(),
            annotations: tables.annotations,
            threads,
            runnable,
            fair: tables.runnable.fair,
            preemption_allowed: self.anywhere(tables.preemption.allowed.as_ref(), &[]),
            interrupts_as_lock: tables.preemption.interrupts_as_lock,
            timer_vector: tables.timer.vector.as_ref().map(|vector| *vector.as_ref()),
            time_passes: tables.timer.time_passes,
            idle_thread: self.anywhere(tables.idle.thread.as_ref(), &[]),
            idle_is: self.anywhere(tables.idle.is.as_ref(), &bindings),
            idle_when: self.anywhere(tables.idle.when.as_ref(), &[]),
            locks,
            heaps,
            test: Test {
                input: test.input,
                command_line,
                text: test.r#type.clone().unwrap_or_else(|| "{test}\n".into()),
                start_hooked: self.hooks.iter().any(|hook| matches!(hook.event, Event::TestStart)),
                points: self.points(&test.points),
                keeps: test.keeps.as_ref().map_or_else(Vec::new, |sizes| self.sizes(sizes)),
                end_hooked: self.hooks.iter().any(|hook| matches!(hook.event, Event::TestEnd)),
            },
            user_region: self.region(tables.user.region.as_ref(), &[]),
            program: self.anywhere(tables.user.program.as_ref(), &[]),
            space: self.anywhere(tables.user.space.as_ref(), &bindings),
            library: tables.user.library.as_deref().map(Arc::from),
            tested: None,
            ignored_code,
            blocking_code: self.code_ranges(tables.functions.blocking.as_ref()),
            ignored_data: self.data_ranges(tables.ignore.symbols.as_ref()),
            ignored_regions: self.ignored_regions(),
            raceless_code: self.code_ranges(tables.ignore.races.as_ref()),
            timer_code: self.timer_code(),
            guards: Vec::new(),
            console: tables.console.clone(),
            checks,
            lines: self.lines(),
            cautions: std::mem::take(&mut self.cautions),
            hooks: std::mem::take(&mut self.hooks),
            entered: FxHashMap::default(),
            passed: FxHashMap::default(),
        };
        let variables = kernel.preemption_allowed.iter().flat_map(Expression::variables);
        kernel.guards = variables.map(|(start, bytes)| start.0..start.0 + bytes).collect();
        kernel.index();
        kernel
    }

    fn lines(&self) -> Lines {
        let tables = &self.description.tables;
        let line = |text: Option<&Text>| text.map(|text| self.description.line(text.span().start));
        Lines {
            current: line(tables.threads.current.as_ref()),
            id: line(tables.threads.id.as_ref()),
            runnable: line(tables.runnable.when.as_ref()),
            allowed: line(tables.preemption.allowed.as_ref()),
            vector: tables.timer.vector.as_ref().map(|vector| self.description.line(vector.span().start)),
        }
    }

    /// Numbers that the kernel's types alone decide.
    fn sizes(&mut self, texts: &Names) -> Vec<u64> {
        let (nothing, registers) = (Pieces::default(), Registers::default());
        let constant = |size: Expression| size.value(&nothing, &Inputs::new(&registers)).ok();
        let sizes: Vec<Option<u64>> = self.list(texts).into_iter().map(constant).collect();
        if sizes.contains(&None) {
            self.problem(texts.span().start, "a size is a number, such as \"sizeof(struct thread)\"");
        }
        sizes.into_iter().flatten().collect()
    }

    fn list(&mut self, names: &Names) -> Vec<Expression> {
        let definitions = self.definitions.clone();
        let scope = Scope {
            image: self.image,
            function: None,
            returns: false,
            at: None,
            bindings: &[],
            definitions: &definitions,
        };
        let mut expressions = Vec::new();
        for text in &names.as_ref().0 {
            match Expression::compile(text, &scope) {
                Ok(expression) => expressions.push(expression),
                Err(problem) => {
                    let at = self.description.item(&names.span(), text) + problem.span.start;
                    self.problem(at, problem.message);
                }
            }
        }
        expressions
    }
}

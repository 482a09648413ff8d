//! From a description and an image to a [`Kernel`], collecting every problem on the way.

mod tables;
mod whole;

use super::{Activity, Hook, HookEvent, Kernel, Place, Region};
use crate::elf::code;
use crate::elf::image::{FunctionId, Image};
use crate::elf::nearest::suggestion;
use crate::hooks::description::{self as d, Description, Names, Problem, Text};
use crate::hooks::expression::{self, Binding, Expression, Scope, Ty};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{Trusted, VirtAddr};

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
        // Into itself it is inlined only after it has been entered; and what is trusted loses nothing inside
        // of what is.
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
                        format!("'{text}' is not a place: write \"enter FUNCTION\", \"leave FUNCTION\", \"line FILE:NUMBER\" or \"text FUNCTION: TEXT\""),
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

    fn add(&mut self, event: HookEvent, place: Resolved, condition: Option<&Text>) {
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

    fn thread_hooks(
        &mut self,
        hooks: &[toml::Spanned<d::ThreadHook>],
        event: impl Fn(Expression) -> HookEvent,
    ) {
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
        self.stretches(names, &[HookEvent::Enter(activity), HookEvent::Leave(activity)]);
    }

    /// What happens where these functions are entered and where they are left.
    fn stretches(&mut self, names: Option<&Names>, [enters, leaves]: &[HookEvent; 2]) {
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
    fn around(&mut self, first: usize, [enters, leaves]: [HookEvent; 2]) {
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
        self.around(first, [HookEvent::EnterTrusted(code), HookEvent::LeaveTrusted(code)]);
    }

    /// No preemption is tried in them, or none under a lock.
    pub fn seal(&mut self, first: usize, activity: Activity) {
        self.around(first, [HookEvent::Enter(activity), HookEvent::Leave(activity)]);
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

//! From C functions to a model: the translation.
//!
//! Contract: every statement of the C text becomes Promela statements, is left out because a rule says so, or
//! is listed as a [`Gap`] with its place; nothing is dropped in silence. Each Promela statement is on a line
//! of its own and knows its C line. With steps of single accesses ([`Granularity::Access`]) a step reads or
//! writes at most one variable that others share, as a processor does: further reads go to temporaries first,
//! from left to right.
//!
//! A call of an extracted function is expanded where it is made, with names of its own, so that there is no
//! stack; a function that calls itself is a gap. Pointers to structures are numbers of objects in an array
//! for each structure (a pool), and the null pointer is a number beyond every array, so that Spin's own check
//! of array bounds finds its use. Locks are variables with the number of who holds them, zero when free.
//!
//! Source: Holzmann and Joshi 2004 for the structure of the translation; Kim, Hong, Hong and Kim 2009,
//! sections 2.2, 4.2 and 6, for pointers as indices and null beyond the bounds. Calls are expanded by us and
//! not by Promela's `inline`, which has one set of names for all its uses and no return.
//!
//! Limits: integers are signed and 32 bits wide at most, and do not wrap as C's unsigned ones do. A pointer
//! is to a whole object, not into it. Local structures, unions seen two ways, pointers to functions and
//! assembly need rules.

mod declare;
mod expression;
mod object;
mod primitive;
mod statement;

use crate::c::{Declaration, Expr, Function, Place, Type, Unit};
use crate::check::{Check, Granularity};
use crate::model::{Gap, Line, Model, Origin, ProcessText, Share};
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};

/// The null pointer, an index beyond every array.
pub const NULL: u32 = 255;
/// The most objects of a structure, so that each has an index.
pub const OBJECTS_MAX: u32 = 254;
/// The most lines of a model: a longer one is read by nobody, and not explored by Spin.
const LINES_MAX: usize = 200_000;
/// How deep calls inside calls are expanded.
const EXPANSION_MAX: usize = 64;

/// A variable as the model has it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Variable {
    text: String,
    ty: Type,
    shared: bool,
}

/// The value of an expression, as Promela text in which at most one shared variable is read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Term {
    text: String,
    ty: Type,
    shared: bool,
}

impl Term {
    fn own(text: impl Into<String>, ty: Type) -> Self {
        Self { text: text.into(), ty, shared: false }
    }

    fn is_pointer(&self) -> bool {
        matches!(self.ty, Type::Pointer(_))
    }
}

/// Why something is not translated, and which text it is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Unknown {
    at: Place,
    text: String,
    why: String,
}

type Lowered<T> = Result<T, Unknown>;

fn unknown<T>(value: &Expr, why: impl Into<String>) -> Lowered<T> {
    Err(Unknown { at: value.at.clone(), text: value.text.clone(), why: why.into() })
}

/// What a structure's objects are in the model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Pool {
    /// How many objects are variables; these come first.
    variables: u32,
    fields: BTreeSet<String>,
    /// Whether objects are allocated, or freed, somewhere.
    allocated: bool,
    freed: bool,
}

/// What the model turns out to need: shared by all processes.
#[derive(Debug, Default)]
struct Needs {
    globals: BTreeMap<String, Type>,
    pools: BTreeMap<String, Pool>,
    /// The first object of each variable that is a structure or an array of them.
    objects: BTreeMap<String, (String, u32)>,
    constants: BTreeMap<String, i64>,
    /// Structures that are inside others, with the fields used.
    nested: BTreeMap<String, BTreeSet<String>>,
    locks: BTreeSet<String>,
    waits: bool,
    exclusion: bool,
    /// Numbers for channels that are no objects and that threads sleep on.
    channels: BTreeMap<String, u32>,
}

/// Where `break` and `continue` lead in a loop.
struct Jump {
    /// The label for `break`; `None`: Promela's own `break` does.
    break_to: Option<String>,
    continue_to: Option<String>,
    continued: bool,
    is_loop: bool,
}

/// A function that is being expanded.
struct Activation {
    function: String,
    labels: BTreeMap<String, String>,
    return_label: String,
    returned: bool,
    /// The variable that gets the return value.
    result: Option<Variable>,
    scopes: Vec<BTreeMap<String, Variable>>,
    jumps: Vec<Jump>,
}

struct Lowering<'a> {
    check: &'a Check,
    unit: &'a Unit,
    table: Table,
    needs: Needs,
    gaps: Vec<Gap>,
    share: Share,
    /// Statements of the source that were counted: a function that is expanded twice counts once.
    counted: BTreeSet<(Place, String)>,
    // What follows is of one process.
    lines: Vec<Line>,
    indent: usize,
    activations: Vec<Activation>,
    names: BTreeSet<String>,
    locals: Vec<(String, String, String)>,
    at: Option<(Place, String)>,
    /// The number of the process, from 1.
    me: usize,
    lock_types: BTreeSet<String>,
}

/// Words that are reserved in Promela.
const RESERVED: [&str; 62] = [
    "active",
    "assert",
    "atomic",
    "bit",
    "bool",
    "break",
    "byte",
    "c_code",
    "c_decl",
    "c_expr",
    "c_state",
    "c_track",
    "chan",
    "d_step",
    "D_proctype",
    "do",
    "else",
    "empty",
    "enabled",
    "eval",
    "false",
    "fi",
    "for",
    "full",
    "get_priority",
    "goto",
    "hidden",
    "if",
    "in",
    "init",
    "inline",
    "int",
    "len",
    "local",
    "ltl",
    "mtype",
    "nempty",
    "never",
    "nfull",
    "notrace",
    "np_",
    "od",
    "of",
    "pc_value",
    "pid",
    "printf",
    "printm",
    "priority",
    "proctype",
    "provided",
    "return",
    "run",
    "select",
    "short",
    "show",
    "skip",
    "timeout",
    "trace",
    "true",
    "typedef",
    "unless",
    "unsigned",
];

/// A name that Promela accepts.
fn safe(name: &str) -> String {
    let taken = RESERVED.contains(&name)
        || matches!(
            name,
            "NULL" | "finished" | "waits_for" | "xr" | "xs" | "STDIN" | "exclusive" | "now" | "assign"
        );
    if taken || name.starts_with('_') {
        format!("{}_", name.trim_start_matches('_'))
    } else {
        name.to_owned()
    }
}

/// Translates what a check file names. Bad input is reported in sentences.
pub fn extract(check: &Check, unit: &Unit) -> Result<Model, String> {
    for function in &check.functions {
        if let Some((_, place)) = unit.errors.iter().find(|(inside, _)| inside.as_ref() == Some(function)) {
            return Err(format!(
                "{place}: this is not C as far as the reader understands it, in '{function}'"
            ));
        }
        if !unit.functions.contains_key(function) {
            let known: Vec<&str> = unit.functions.keys().map(String::as_str).collect();
            let near =
                known.iter().filter(|name| name.contains(function.as_str()) || function.contains(**name));
            let near: Vec<&str> = near.copied().take(4).collect();
            let hint = match (near.is_empty(), unit.errors.first()) {
                (false, _) => format!("; similar names: {}", near.join(", ")),
                (true, Some((_, place))) => format!("; the file is not read completely: see {place}"),
                (true, None) => String::new(),
            };
            return Err(format!("the source files define no function '{function}'{hint}"));
        }
    }
    let mut lowering = Lowering::new(check, unit);
    let property = &check.property;
    for text in
        [Some(&check.environment), property.finally.as_ref(), property.ltl.as_ref()].into_iter().flatten()
    {
        lowering.mention(text);
    }
    let setup = lowering.setup()?;
    let mut bodies = Vec::new();
    for (at, process) in check.processes.iter().enumerate() {
        bodies.push(lowering.process(at + 1, process)?);
    }
    lowering.assemble(setup, bodies)
}

/// One process as it was translated.
struct Body {
    locals: Vec<(String, String, String)>,
    lines: Vec<Line>,
}

impl<'a> Lowering<'a> {
    fn new(check: &'a Check, unit: &'a Unit) -> Self {
        let mut lowering = Self {
            check,
            unit,
            table: Table::new(&check.rules),
            needs: Needs::default(),
            gaps: Vec::new(),
            share: Share::default(),
            counted: BTreeSet::new(),
            lines: Vec::new(),
            indent: 0,
            activations: Vec::new(),
            names: BTreeSet::new(),
            locals: Vec::new(),
            at: None,
            me: 0,
            lock_types: BTreeSet::new(),
        };
        for lock in &check.locks {
            for function in [&lock.lock, &lock.unlock] {
                let ty = unit.signatures.get(function).and_then(|types| types.get(lock.argument));
                if let Some(Type::Struct(name)) = ty.map(|ty| unit.resolve(ty)).and_then(|ty| match ty {
                    Type::Pointer(to) => Some(*to),
                    _ => None,
                }) {
                    lowering.lock_types.insert(name);
                }
            }
        }
        lowering
    }

    /// Begins a process: nothing is known of its names yet.
    fn begin(&mut self, me: usize) {
        self.me = me;
        self.lines = Vec::new();
        self.locals = Vec::new();
        self.names = BTreeSet::new();
        self.indent = 1;
        self.activations = Vec::new();
        self.at = None;
    }

    fn setup(&mut self) -> Result<Body, String> {
        self.begin(0);
        for call in &self.check.setup {
            let value = self.snippet(call)?;
            let Some((name, _)) = value.called() else {
                return Err(format!("setup: '{call}' is no call of a function"));
            };
            if !self.check.functions.iter().any(|function| function == name) {
                return Err(format!("setup: '{name}' is not among 'functions'"));
            }
            self.activations.push(Activation::outermost());
            self.at = Some((value.at.clone(), "setup".to_owned()));
            if let Err(unknown) = self.effect(&value) {
                self.record(unknown);
            }
            self.activations.clear();
        }
        Ok(self.end())
    }

    fn end(&mut self) -> Body {
        Body { locals: std::mem::take(&mut self.locals), lines: std::mem::take(&mut self.lines) }
    }

    fn process(&mut self, me: usize, process: &crate::check::Process) -> Result<Body, String> {
        self.begin(me);
        let function = &self.unit.functions[&process.function];
        if process.arguments.len() != function.parameters.len() {
            return Err(format!(
                "process '{}': {} has {} parameters ({}), and {} arguments are given",
                process.name,
                function.name,
                function.parameters.len(),
                function.parameters.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
                process.arguments.len()
            ));
        }
        let mut values = Vec::new();
        self.activations.push(Activation::outermost());
        for argument in &process.arguments {
            if let Some(text) = argument.strip_prefix('@') {
                let ty = Type::Pointer(Box::new(Type::Void));
                values.push(Term::own(text.trim(), ty));
                continue;
            }
            let value = self.snippet(argument)?;
            let term = self.term(&value).map_err(|unknown| {
                format!("process '{}', argument '{argument}': {}", process.name, unknown.why)
            })?;
            values.push(term);
        }
        self.activations.clear();
        for held in &process.holds {
            let lock = self.named_lock(&held.lock);
            let at = format!(" taken in {} ({})", held.taken_in, held.at);
            let note = if held.taken_in.is_empty() { String::new() } else { format!("  /*{at} */") };
            self.plain(format!("{}{note}", self.take(&lock)));
        }
        self.expand(function, values, None);
        for held in process.holds.iter().rev() {
            let lock = self.named_lock(&held.lock);
            self.plain(format!("{lock} = 0;"));
        }
        self.plain("finished = finished + 1;".to_owned());
        Ok(self.end())
    }

    /// The variable of a lock that a check file names: one of the kernel's, or one of the model's own.
    fn named_lock(&mut self, name: &str) -> String {
        let name = safe(&name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        self.needs.locks.insert(name.clone());
        name
    }

    /// Parses a C expression of a check file.
    fn snippet(&self, text: &str) -> Result<Expr, String> {
        let unit = crate::c::parse("check file", &format!("int snippet = ({text});"), 32);
        let bad = || format!("'{text}' is no C expression");
        if !unit.errors.is_empty() {
            return Err(bad());
        }
        unit.globals.get("snippet").and_then(|snippet| snippet.value.clone()).ok_or_else(bad)
    }

    fn record(&mut self, unknown: Unknown) {
        let function = self.activations.last().map_or("setup", |activation| &activation.function).to_owned();
        let statement = self.at.as_ref().map_or(String::new(), |(_, text)| text.clone());
        self.gaps.push(Gap {
            at: unknown.at,
            function,
            text: unknown.text,
            statement,
            in_condition: false,
            why: unknown.why,
        });
    }

    /// Records a condition that could not be translated.
    fn record_condition(&mut self, unknown: Unknown) {
        self.record(unknown);
        if let Some(gap) = self.gaps.last_mut() {
            gap.in_condition = true;
        }
    }

    fn granular(&self) -> bool {
        self.check.model.step == Granularity::Access
    }

    // ---- Emission ----

    fn emit(&mut self, text: String, access: bool) {
        if self.lines.len() >= LINES_MAX {
            return;
        }
        let depth = self.activations.len().saturating_sub(1) as u32;
        let origin = self.at.as_ref().filter(|_| self.me > 0).map(|(at, words)| Origin {
            at: at.clone(),
            function: self.activations.last().map_or(String::new(), |inside| inside.function.clone()),
            text: words.clone(),
            access,
            depth,
        });
        self.lines.push(Line { text, indent: self.indent, origin });
    }

    /// Adds a line that stands for nothing in C.
    fn plain(&mut self, text: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(Line { text, indent: self.indent, origin: None });
        }
    }

    /// A name that is new in this process.
    fn fresh(&mut self, wish: &str) -> String {
        let wish = safe(wish);
        let mut name = wish.clone();
        let mut number = 2;
        while self.names.contains(&name)
            || self.unit.globals.contains_key(&name)
            || self.unit.structs.contains_key(&name)
            || self.unit.constants.contains_key(&name)
        {
            name = format!("{wish}_{number}");
            number += 1;
        }
        self.names.insert(name.clone());
        name
    }

    fn temporary(&mut self, ty: &Type) -> Variable {
        let name = self.fresh("t");
        self.declare(&name, ty);
        Variable { text: name, ty: ty.clone(), shared: false }
    }

    /// Declares a variable of the process.
    fn declare(&mut self, name: &str, ty: &Type) {
        let (promela, array) = match ty {
            Type::Array(of, size) => {
                (promela_type(of), size.map_or(String::new(), |size| format!("[{size}]")))
            }
            other => (promela_type(other), String::new()),
        };
        self.locals.push((promela.unwrap_or("int").to_owned(), name.to_owned(), array));
    }

    /// What a check file says the type of something is.
    fn override_of(&self, keys: &[String]) -> Option<Type> {
        let text = keys.iter().find_map(|key| self.check.types.get(key))?;
        Some(match text.trim() {
            "bool" | "bit" => Type::Bool,
            "byte" => Type::Integer { bits: 8, signed: false },
            "short" => Type::Integer { bits: 16, signed: true },
            other => match other.strip_suffix('*') {
                Some(name) => {
                    let name = name.trim().trim_start_matches("struct ").to_owned();
                    Type::Pointer(Box::new(Type::Struct(name)))
                }
                None => Type::INT,
            },
        })
    }

    fn lookup(&self, name: &str) -> Option<Variable> {
        let inside = self.activations.last()?;
        inside.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned()
    }

    fn global(&self, name: &str) -> Option<&'a Declaration> {
        self.unit.globals.get(name)
    }

    fn function(&self, name: &str) -> Option<&'a Function> {
        self.check.functions.iter().any(|known| known == name).then(|| self.unit.functions.get(name))?
    }

    fn current_function(&self) -> String {
        self.activations.last().map_or(String::new(), |inside| inside.function.clone())
    }
}

impl Activation {
    /// The place outside of all functions.
    fn outermost() -> Self {
        Self::new("setup", String::new(), None)
    }

    fn new(function: &str, return_label: String, result: Option<Variable>) -> Self {
        Self {
            function: function.to_owned(),
            labels: BTreeMap::new(),
            return_label,
            returned: false,
            result,
            scopes: vec![BTreeMap::new()],
            jumps: Vec::new(),
        }
    }
}

/// The Promela type that holds a C type.
fn promela_type(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Bool => "bool",
        Type::Integer { bits: 8, signed: false } => "byte",
        Type::Integer { bits: 8, signed: true } | Type::Integer { bits: 16, signed: true } => "short",
        Type::Integer { .. } => "int",
        Type::Pointer(to) => match **to {
            Type::Struct(_) | Type::Void => "byte",
            _ => return None,
        },
        _ => return None,
    })
}

/// Keeps what each process is called together with where its text is.
fn process_text(name: &str, function: &str, first: usize, last: usize) -> ProcessText {
    ProcessText {
        name: name.to_owned(),
        function: function.to_owned(),
        first: first as u32,
        last: last as u32,
    }
}

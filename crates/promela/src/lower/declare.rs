//! The whole model: declarations, processes, and the beginning.

use super::{Body, Lowering, OBJECTS_MAX, process_text, promela_type, safe};
use crate::c::Type;
use crate::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

impl Lowering<'_> {
    /// Puts the translated processes behind what they need.
    pub(super) fn assemble(mut self, setup: Body, bodies: Vec<Body>) -> Result<Model, String> {
        self.lines = Vec::new();
        self.indent = 0;
        self.declarations()?;
        let count = bodies.len();
        let mut processes = Vec::new();
        let guard = if self.needs.exclusion { " provided (exclusive == 0 || exclusive == ME)" } else { "" };
        for (at, (process, body)) in self.check.processes.iter().zip(bodies).enumerate() {
            let guard = guard.replace("ME", &(at + 1).to_string());
            self.plain(format!("proctype {}(){guard} {{", process.name));
            let first = self.lines.len();
            self.indent = 1;
            self.put(body);
            self.indent = 0;
            processes.push(process_text(&process.name, &process.function, first, self.lines.len()));
            self.plain("}".to_owned());
        }
        self.plain("init {".to_owned());
        self.indent = 1;
        let environment = self.check.environment.clone();
        let begins = !setup.lines.is_empty() || !environment.trim().is_empty();
        let mut setup = setup;
        for (ty, name, array) in setup.locals.drain(..) {
            self.plain(format!("{ty} {name}{array};"));
        }
        if begins {
            self.plain("atomic {".to_owned());
        }
        self.put(setup);
        for line in environment.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.plain(line.to_owned());
        }
        if begins {
            self.plain("};".to_owned());
        }
        let runs: Vec<String> = self.check.processes.iter().map(|p| format!("run {}()", p.name)).collect();
        self.plain(format!("atomic {{ {} }};", runs.join("; ")));
        if let Some(finally) = &self.check.property.finally {
            let finally = format!("(finished == {count}) -> assert({finally})");
            self.plain(finally);
        }
        self.indent = 0;
        self.plain("}".to_owned());
        if let Some(formula) = &self.check.property.ltl {
            self.plain(format!("ltl required {{ {formula} }}"));
        }
        let variables = self.needs.globals.keys().map(|name| (name.clone(), name.clone())).collect();
        let objects = self.needs.objects.iter();
        let mut gaps = self.gaps;
        gaps.sort();
        gaps.dedup();
        Ok(Model {
            lines: self.lines,
            gaps,
            unused_rules: self.table.unused().map(|rule| rule.c.clone()).collect(),
            share: self.share,
            processes,
            has_exclusion: self.needs.exclusion,
            variables,
            objects: objects
                .map(|(name, (structure, first))| (safe(structure), *first, name.clone()))
                .collect(),
        })
    }

    fn put(&mut self, body: Body) {
        for (ty, name, array) in body.locals {
            self.plain(format!("{ty} {name}{array};"));
        }
        self.lines.extend(body.lines);
    }

    fn declarations(&mut self) -> Result<(), String> {
        let values = self.initial_values();
        self.plain(format!("#define NULL {}", super::NULL));
        for line in self.check.declarations.clone().lines() {
            self.plain(line.to_owned());
        }
        for (name, value) in std::mem::take(&mut self.needs.constants) {
            self.plain(format!("#define {name} {value}"));
        }
        for (name, (_, first)) in self.needs.objects.clone() {
            self.plain(format!("#define {} {first}", safe(&name)));
        }
        self.plain("byte finished;".to_owned());
        if self.needs.waits {
            self.plain(format!("int waits_for[{}];", self.check.processes.len() + 1));
        }
        if self.needs.exclusion {
            self.plain("byte exclusive;".to_owned());
        }
        for lock in std::mem::take(&mut self.needs.locks) {
            self.plain(format!("byte {lock};"));
        }
        self.structures()?;
        self.globals(&values);
        Ok(())
    }

    /// Structures, those that are inside others first.
    fn structures(&mut self) -> Result<(), String> {
        let pools = std::mem::take(&mut self.needs.pools);
        let mut all: BTreeMap<String, BTreeSet<String>> = self.needs.nested.clone();
        for (name, pool) in &pools {
            all.entry(name.clone()).or_default().extend(pool.fields.iter().cloned());
        }
        let mut done = BTreeSet::new();
        let names: Vec<String> = all.keys().cloned().collect();
        for name in names {
            self.structure(&name, &all, &pools, &mut done, 0);
        }
        for (name, pool) in &pools {
            let more = self.check.pools.get(name).copied().unwrap_or(0);
            let count = pool.variables + more;
            if count == 0 {
                self.gaps.push(self.no_objects(name));
                continue;
            }
            if count > OBJECTS_MAX {
                return Err(format!("there are {count} objects of 'struct {name}', more than {OBJECTS_MAX}"));
            }
            let array = safe(name);
            if pool.allocated {
                self.plain(format!("#define FIRST_{array} {}", pool.variables));
            }
            self.plain(format!("STRUCT_{array} {array}[{count}];"));
        }
        self.needs.pools = pools;
        Ok(())
    }

    fn no_objects(&self, name: &str) -> crate::model::Gap {
        let at = crate::c::parse::place("check file", 1);
        crate::model::Gap {
            at,
            function: "the model".to_owned(),
            text: format!("struct {name}"),
            statement: String::new(),
            in_condition: false,
            why: format!("there are no objects of it: say how many, [pools] {name} = 2"),
        }
    }

    fn structure(
        &mut self,
        name: &str,
        all: &BTreeMap<String, BTreeSet<String>>,
        pools: &BTreeMap<String, super::Pool>,
        done: &mut BTreeSet<String>,
        depth: u32,
    ) {
        if depth > 16 || self.lock_types.contains(name) || !done.insert(name.to_owned()) {
            return;
        }
        let mut text = String::new();
        let fields = self.unit.structs.get(name).cloned().unwrap_or_default();
        for (field, ty) in
            fields.iter().filter(|(field, _)| all.get(name).is_some_and(|used| used.contains(field)))
        {
            let key = format!("{name}.{field}");
            let ty = self.override_of(&[key]).unwrap_or_else(|| self.unit.resolve(ty));
            let field = safe(field);
            let _ = match &ty {
                Type::Struct(lock) if self.lock_types.contains(lock) => write!(text, " byte {field};"),
                Type::Struct(inner) => {
                    self.structure(inner, all, pools, done, depth + 1);
                    write!(text, " STRUCT_{} {field};", safe(inner))
                }
                Type::Array(of, Some(size)) => {
                    write!(text, " {} {field}[{size}];", promela_type(of).unwrap_or("int"))
                }
                other => write!(text, " {} {field};", promela_type(other).unwrap_or("int")),
            };
        }
        if let Some(pool) = pools.get(name) {
            if pool.allocated {
                text.push_str(" bool taken;");
            }
            if pool.freed && self.check.property.freed {
                text.push_str(" bool freed;");
            }
        }
        if text.is_empty() {
            text.push_str(" bit nothing;");
        }
        self.plain(format!("typedef STRUCT_{} {{{text} }}", safe(name)));
    }

    /// What the variables begin with; looked at before the structures, since a value may be an object.
    fn initial_values(&mut self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        let used: Vec<String> = self.needs.globals.keys().chain(self.needs.objects.keys()).cloned().collect();
        for name in used {
            let known = self.unit.globals.values().find(|declaration| safe(&declaration.name) == name);
            let Some(declaration) = known else { continue };
            let pointer = matches!(self.unit.resolve(&declaration.ty), Type::Pointer(_));
            let Some(value) = &declaration.value else {
                if pointer {
                    values.insert(name, "NULL".to_owned());
                }
                continue;
            };
            let number = self.unit.constant(value);
            self.activations.push(super::Activation::outermost());
            let term = match (pointer, number) {
                (true, Some(0)) => Ok("NULL".to_owned()),
                (_, Some(number)) => Ok(number.to_string()),
                _ => self.term(value).map(|term| term.text),
            };
            self.activations.clear();
            match term {
                Ok(text) => {
                    values.insert(name, text);
                }
                // Whoever sets it up by hand knows what it begins with.
                Err(_) if self.check.environment.contains(&name) => {}
                Err(unknown) => self.gaps.push(crate::model::Gap {
                    at: unknown.at,
                    function: "the model".to_owned(),
                    text: format!("{} = {}", declaration.name, unknown.text),
                    statement: String::new(),
                    in_condition: false,
                    why: format!("set '{name}' in 'environment' instead; {}", unknown.why),
                }),
            }
        }
        values
    }

    fn globals(&mut self, values: &BTreeMap<String, String>) {
        for (name, ty) in self.needs.globals.clone() {
            let begins = values.get(&name).map_or(String::new(), |value| format!(" = {value}"));
            self.plain(match &ty {
                Type::Array(of, Some(size)) => {
                    format!("{} {name}[{size}];", promela_type(of).unwrap_or("int"))
                }
                other => format!("{} {name}{begins};", promela_type(other).unwrap_or("int")),
            });
        }
    }
}

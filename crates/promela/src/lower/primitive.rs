//! Calls: of extracted functions, and of those that a model knows by what they do.

use super::expression::strip;
use super::{Activation, EXPANSION_MAX, Lowered, Lowering, Term, Variable, unknown};
use crate::c::{Expr, ExprKind, Function, Type};
use crate::check::WaitFunctions;
use std::fmt::Write as _;

impl Lowering<'_> {
    /// Translates a call, whose value is used or not.
    pub(super) fn call(&mut self, value: &Expr, used: bool) -> Lowered<Term> {
        let Some((name, arguments)) = value.called() else {
            return unknown(value, "a call through a pointer is not translated");
        };
        let name = name.to_owned();
        if let Some(function) = self.function(&name) {
            return self.call_extracted(value, function, arguments, used);
        }
        if used {
            return unknown(value, format!("'{name}' is not extracted, and its value is used"));
        }
        let nothing = || Term::own("0", Type::Void);
        if let Some(lock) = self.check.locks.iter().find(|lock| lock.lock == name || lock.unlock == name) {
            let Some(argument) = arguments.get(lock.argument) else {
                return unknown(
                    value,
                    format!("'{name}' is a lock's, but has no argument {}", lock.argument),
                );
            };
            let text = self.lock_variable(argument)?;
            let statement = match (lock.lock == name, lock.counts) {
                (true, true) => format!("atomic {{ ({text} > 0) -> {text} = {text} - 1 }};"),
                (false, true) => format!("{text} = {text} + 1;"),
                (true, false) => self.take(&text),
                (false, false) => format!("{text} = 0;"),
            };
            self.emit(statement, true);
            return Ok(nothing());
        }
        if self.check.heaps.iter().any(|heap| heap.free == name) {
            return self.free(value, arguments).map(|()| nothing());
        }
        if self.check.exclusives.iter().any(|pair| pair.off == name) {
            self.exclude();
            return Ok(nothing());
        }
        if self.check.exclusives.iter().any(|pair| pair.on == name) {
            self.include();
            return Ok(nothing());
        }
        let waits = self.check.waits.iter().find(|waits| {
            waits.sleep == name
                || waits.wake_all.as_ref() == Some(&name)
                || waits.wake_one.as_ref() == Some(&name)
        });
        if let Some(waits) = waits {
            return self.wait_call(value, &name, waits, arguments).map(|()| nothing());
        }
        unknown(value, format!("'{name}' is not extracted"))
    }

    fn call_extracted(
        &mut self,
        value: &Expr,
        function: &Function,
        arguments: &[Expr],
        used: bool,
    ) -> Lowered<Term> {
        if self.activations.iter().any(|inside| inside.function == function.name) {
            return unknown(value, format!("'{}' calls itself: that has no end here", function.name));
        }
        if self.activations.len() > EXPANSION_MAX {
            return unknown(value, format!("it is more than {EXPANSION_MAX} calls deep"));
        }
        if arguments.len() != function.parameters.len() {
            return unknown(value, format!("'{}' has other parameters", function.name));
        }
        let mut values = Vec::new();
        for (argument, (parameter, ty)) in arguments.iter().zip(&function.parameters) {
            let ty = self.parameter_type(function, parameter, ty);
            if super::promela_type(&ty).is_none() {
                // What has no type in the model can be passed on; only its use needs a rule.
                values.push(Term::own("0", ty));
                continue;
            }
            let term = self.term(argument)?;
            values.push(self.in_variable(term));
        }
        let returns = self.override_of(&[format!("{}.return", function.name)]);
        let returns = returns.unwrap_or_else(|| self.unit.resolve(&function.returns));
        let modelled = super::promela_type(&returns).is_some() && returns != Type::Void;
        if used && !modelled {
            return unknown(value, format!("'{}' returns '{returns}'", function.name));
        }
        let result = (used && modelled).then(|| {
            let name = self.fresh(&format!("{}_result", function.name));
            self.declare(&name, &returns);
            Variable { text: name, ty: returns.clone(), shared: false }
        });
        self.expand(function, values, result.clone());
        Ok(result.map_or_else(|| Term::own("0", Type::Void), |result| Term::own(result.text, result.ty)))
    }

    fn parameter_type(&self, function: &Function, parameter: &str, ty: &Type) -> Type {
        let key = format!("{}.{parameter}", function.name);
        self.override_of(&[key]).unwrap_or_else(|| self.unit.resolve(ty))
    }

    /// Expands a function's body here.
    pub(super) fn expand(&mut self, function: &Function, values: Vec<Term>, result: Option<Variable>) {
        let outside = self.at.take();
        let label = self.fresh(&format!("return_{}", function.name));
        let mut inside = Activation::new(&function.name, label.clone(), result);
        for ((parameter, ty), value) in function.parameters.iter().zip(values) {
            let ty = self.parameter_type(function, parameter, ty);
            let name = self.fresh(parameter);
            let variable = Variable { text: name.clone(), ty: ty.clone(), shared: false };
            if super::promela_type(&ty).is_some() {
                self.declare(&name, &ty);
                self.at = outside.clone();
                let value = super::expression::fitting(&ty, value);
                let text = format!("{name} = {};", super::expression::bare(&value.text));
                if self.at.is_some() { self.emit(text, value.shared) } else { self.plain(text) }
            }
            if let Some(scope) = inside.scopes.last_mut() {
                scope.insert(parameter.clone(), variable);
            }
        }
        self.activations.push(inside);
        self.body(&function.body);
        if let Some(inside) = self.activations.pop()
            && inside.returned
        {
            self.plain(format!("{label}: skip;"));
        }
        self.at = outside;
    }

    // ---- Locks ----

    /// The variable of a lock whose address is given.
    pub(super) fn lock_variable(&mut self, argument: &Expr) -> Lowered<String> {
        let inner = strip(argument);
        if let ExprKind::AddressOf(lock) = &inner.kind {
            let lock = strip(lock);
            return match &lock.kind {
                ExprKind::Name(name) if self.lookup(name).is_none() && self.global(name).is_some() => {
                    let name = super::safe(name);
                    self.needs.locks.insert(name.clone());
                    Ok(name)
                }
                ExprKind::Field { .. } => {
                    let (text, ty, _) = self.member(lock)?;
                    if let Type::Struct(structure) = &ty {
                        self.lock_types.insert(structure.clone());
                    }
                    Ok(text)
                }
                ExprKind::Index(base, index) => {
                    if let ExprKind::Name(name) = &base.kind
                        && self.lookup(name).is_none()
                        && let Some(declaration) = self.global(name)
                        && let Type::Array(_, Some(size)) = self.unit.resolve(&declaration.ty)
                    {
                        let index = self.term(index)?;
                        let index = self.in_variable(index);
                        let name = super::safe(name);
                        let byte = Box::new(Type::Integer { bits: 8, signed: false });
                        self.needs.globals.insert(name.clone(), Type::Array(byte, Some(size)));
                        return Ok(format!("{name}[{}]", index.text));
                    }
                    unknown(argument, "this lock is not modelled")
                }
                _ => unknown(argument, "this lock is not modelled"),
            };
        }
        unknown(argument, "only the address of a variable or field can be a lock here")
    }

    /// The statement that takes a lock, once it is free.
    pub(super) fn take(&self, lock: &str) -> String {
        format!("atomic {{ ({lock} == 0) -> {lock} = {} }}", self.me.max(1)) + ";"
    }

    // ---- Nobody else runs ----

    fn exclude(&mut self) {
        self.needs.exclusion = true;
        let me = self.me.max(1);
        if !self.names.contains("exclusive_depth") {
            self.names.insert("exclusive_depth".to_owned());
            self.locals.push(("byte".to_owned(), "exclusive_depth".to_owned(), String::new()));
        }
        self.emit(format!("d_step {{ exclusive = {me}; exclusive_depth = exclusive_depth + 1 }};"), true);
    }

    fn include(&mut self) {
        self.needs.exclusion = true;
        let leave = "if :: (exclusive_depth == 0) -> exclusive = 0 :: else fi";
        self.emit(format!("d_step {{ exclusive_depth = exclusive_depth - 1; {leave} }};"), true);
    }

    // ---- Sleeping and waking ----

    fn wait_call(
        &mut self,
        value: &Expr,
        name: &str,
        waits: &WaitFunctions,
        arguments: &[Expr],
    ) -> Lowered<()> {
        self.needs.waits = true;
        let Some(channel) = arguments.get(waits.channel) else {
            return unknown(value, format!("'{name}' has no argument {} for its channel", waits.channel));
        };
        let channel = self.channel(channel)?;
        let me = self.me.max(1);
        if waits.sleep == name {
            let lock = match waits.lock.map(|at| arguments.get(at)) {
                Some(Some(lock)) => Some(self.lock_variable(lock)?),
                Some(None) => return unknown(value, format!("'{name}' is given no lock")),
                None => None,
            };
            let release = lock.as_ref().map_or(String::new(), |lock| format!("{lock} = 0; "));
            self.emit(format!("d_step {{ {release}waits_for[{me}] = {channel} }};"), true);
            self.emit(format!("(waits_for[{me}] == 0);"), true);
            if let Some(lock) = lock {
                let take = self.take(&lock);
                self.emit(take, true);
            }
            return Ok(());
        }
        let count = self.check.processes.len();
        let mut text = String::new();
        if waits.wake_all.as_deref() == Some(name) {
            for at in 1..=count {
                let semicolon = if at == 1 { "" } else { "; " };
                let _ = write!(
                    text,
                    "{semicolon}if :: (waits_for[{at}] == {channel}) -> waits_for[{at}] = 0 :: else fi"
                );
            }
            self.emit(format!("d_step {{ {text} }};"), true);
        } else {
            for at in 1..=count {
                let _ = write!(text, ":: (waits_for[{at}] == {channel}) -> waits_for[{at}] = 0 ");
            }
            self.emit(format!("atomic {{ if {text}:: else fi }};"), true);
        }
        Ok(())
    }

    /// A number for what threads sleep on, never zero: different for different objects and fields.
    fn channel(&mut self, value: &Expr) -> Lowered<String> {
        let inner = strip(value);
        let (what, index) = match &inner.kind {
            ExprKind::AddressOf(of) => match &strip(of).kind {
                ExprKind::Name(name) if self.lookup(name).is_none() => (name.clone(), None),
                ExprKind::Field { base, name, arrow } => {
                    let object = if *arrow { self.pointed(base)? } else { self.object(base)? };
                    (format!("{}.{name}", object.structure), object.index)
                }
                _ => {
                    let term = self.term(inner)?;
                    (term.ty.to_string(), Some(term.text))
                }
            },
            _ => {
                let term = self.term(inner)?;
                let term = self.in_variable(term);
                (term.ty.to_string(), Some(term.text))
            }
        };
        let next = self.needs.channels.len() as u32 + 1;
        let number = *self.needs.channels.entry(what).or_insert(next);
        Ok(match index {
            Some(index) => format!("{} + {index}", number * 256),
            None => (number * 256).to_string(),
        })
    }

    // ---- The heap ----

    /// `target = malloc(...)`: the first object of its structure that nobody has.
    pub(super) fn allocate(&mut self, target: &Expr, source: &Expr) -> Lowered<Term> {
        let place = self.variable(target)?;
        let ty = match (&place.ty, &source.kind) {
            (Type::Pointer(to), ExprKind::Cast(ty, _)) if **to == Type::Void => self.unit.resolve(ty),
            (ty, _) => ty.clone(),
        };
        let Some(structure) = ty.points_to().map(str::to_owned) else {
            return unknown(source, format!("what is allocated has type '{ty}'"));
        };
        let Some(&count) = self.check.pools.get(&structure) else {
            return unknown(source, format!("say how many there can be: [pools] {structure} = 2"));
        };
        self.needs.pools.entry(structure.clone()).or_default().allocated = true;
        let array = super::safe(&structure);
        let result = self.temporary(&ty);
        let mut text = String::new();
        for at in 0..count {
            // Where the pool's own objects begin is known only when all variables are.
            let index = format!("FIRST_{array} + {at}");
            let before: String = (0..at).fold(String::new(), |mut text, other| {
                let _ = write!(text, "{array}[FIRST_{array} + {other}].taken && ");
                text
            });
            let _ = write!(text, ":: ({before}!{array}[{index}].taken) -> ");
            let _ = write!(text, "{array}[{index}].taken = true; {} = {index} ", result.text);
        }
        self.emit(format!("d_step {{ if {text}:: else -> {} = NULL fi }};", result.text), true);
        self.emit(format!("{} = {};", place.text, result.text), place.shared);
        Ok(Term::own(result.text, ty))
    }

    fn free(&mut self, value: &Expr, arguments: &[Expr]) -> Lowered<()> {
        let Some(pointer) = arguments.first() else { return unknown(value, "what is freed is not said") };
        let term = self.term(pointer)?;
        let Some(structure) = term.ty.points_to().map(str::to_owned) else {
            return unknown(value, format!("what is freed has type '{}'", term.ty));
        };
        let term = self.in_variable(term);
        let pool = self.needs.pools.entry(structure.clone()).or_default();
        (pool.freed, pool.allocated) = (true, true);
        let (array, index) = (super::safe(&structure), term.text);
        let gone = match self.check.property.freed {
            true => format!("assert(!{array}[{index}].freed); {array}[{index}].freed = true"),
            false => format!("{array}[{index}].taken = false"),
        };
        self.emit(format!("d_step {{ if :: ({index} != NULL) -> {gone} :: else fi }};"), true);
        Ok(())
    }
}

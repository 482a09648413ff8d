//! Structures as objects of pools.

use super::{Lowered, Lowering, OBJECTS_MAX, Term, unknown};
use crate::c::{Expr, ExprKind, Type};

/// An object: Promela text that names a structure, and the structure.
pub(super) struct Object {
    pub text: String,
    pub structure: String,
    pub shared: bool,
    /// The index in its pool, if it belongs to one.
    pub index: Option<String>,
}

impl Lowering<'_> {
    /// The structure that an expression names.
    pub(super) fn object(&mut self, value: &Expr) -> Lowered<Object> {
        match &value.kind {
            ExprKind::Name(name) => {
                if self.lookup(name).is_some() {
                    return unknown(value, "a structure on the stack is not modelled");
                }
                let Some(declaration) = self.global(name) else {
                    return unknown(value, format!("'{name}' is no variable of the source files"));
                };
                match self.unit.resolve(&declaration.ty) {
                    Type::Struct(structure) => {
                        let first = self.place_object(name, &structure, 1);
                        Ok(self.pooled(structure, first.to_string()))
                    }
                    _ => unknown(value, "this is no structure"),
                }
            }
            ExprKind::Deref(pointer) => self.pointed(pointer),
            ExprKind::Index(base, index) => {
                if let ExprKind::Name(name) = &base.kind
                    && self.lookup(name).is_none()
                    && let Some(declaration) = self.global(name)
                    && let Type::Array(of, size) = self.unit.resolve(&declaration.ty)
                    && let Type::Struct(structure) = *of
                {
                    let Some(size) = size else { return unknown(value, "the array's size is not known") };
                    let first = self.place_object(name, &structure, size);
                    let index = self.term(index)?;
                    let index = self.in_variable(index);
                    let text = if first == 0 { index.text } else { format!("{first} + {}", index.text) };
                    return Ok(self.pooled(structure, text));
                }
                unknown(value, "only arrays that are variables can hold structures")
            }
            ExprKind::Field { .. } => {
                let (text, ty, shared) = self.member(value)?;
                match ty {
                    Type::Struct(structure) => Ok(Object { text, structure, shared, index: None }),
                    _ => unknown(value, "this is no structure"),
                }
            }
            ExprKind::Cast(_, inner) => self.object(inner),
            _ => unknown(value, "this names no object"),
        }
    }

    /// What a pointer points to.
    pub(super) fn pointed(&mut self, pointer: &Expr) -> Lowered<Object> {
        if let ExprKind::AddressOf(inner) = &pointer.kind {
            return self.object(inner);
        }
        let term = self.term(pointer)?;
        let Some(structure) = term.ty.points_to().map(str::to_owned) else {
            return unknown(pointer, format!("it has type '{}', which points to no structure", term.ty));
        };
        let term = self.in_variable(term);
        let object = self.pooled(structure.clone(), term.text.clone());
        if self.check.property.freed && self.frees(&structure) {
            self.emit(format!("assert(!{}.freed);", object.text), false);
        }
        Ok(object)
    }

    /// Whether objects of a structure can be freed, as far as the model knows.
    fn frees(&mut self, structure: &str) -> bool {
        let heap = self.check.pools.contains_key(structure) && !self.check.heaps.is_empty();
        if heap && let Some(pool) = self.needs.pools.get_mut(structure) {
            pool.freed = true;
        }
        heap
    }

    fn pooled(&mut self, structure: String, index: String) -> Object {
        self.needs.pools.entry(structure.clone()).or_default();
        Object {
            text: format!("{}[{index}]", super::safe(&structure)),
            structure,
            shared: true,
            index: Some(index),
        }
    }

    /// Gives a variable its objects, and says which is the first.
    fn place_object(&mut self, name: &str, structure: &str, count: u32) -> u32 {
        if let Some((_, first)) = self.needs.objects.get(name) {
            return *first;
        }
        let pool = self.needs.pools.entry(structure.to_owned()).or_default();
        let first = pool.variables;
        pool.variables = (pool.variables + count).min(OBJECTS_MAX);
        self.needs.objects.insert(name.to_owned(), (structure.to_owned(), first));
        first
    }

    /// A field: its text, its type, and whether others share it.
    pub(super) fn member(&mut self, value: &Expr) -> Lowered<(String, Type, bool)> {
        let ExprKind::Field { base, name, arrow } = &value.kind else {
            return unknown(value, "this is no field");
        };
        let object = if *arrow { self.pointed(base)? } else { self.object(base)? };
        let Some(fields) = self.unit.structs.get(&object.structure) else {
            return unknown(
                value,
                format!("'struct {}' is not defined in the source files", object.structure),
            );
        };
        let Some((_, ty)) = fields.iter().find(|(field, _)| field == name) else {
            return unknown(value, format!("'struct {}' has no field '{name}'", object.structure));
        };
        let key = format!("{}.{name}", object.structure);
        let ty = self.override_of(&[key]).unwrap_or_else(|| self.unit.resolve(ty));
        let modelled = match &ty {
            Type::Array(of, Some(_)) => super::promela_type(of).is_some(),
            Type::Struct(_) => true,
            other => super::promela_type(other).is_some(),
        };
        if !modelled {
            return unknown(
                value,
                format!(
                    "'{}.{name}' has type '{ty}': give it one in [types] or write a rule",
                    object.structure
                ),
            );
        }
        let used = match &object.index {
            Some(_) => &mut self.needs.pools.entry(object.structure.clone()).or_default().fields,
            None => self.needs.nested.entry(object.structure.clone()).or_default(),
        };
        used.insert(name.clone());
        if let Type::Struct(inner) = &ty
            && !self.lock_types.contains(inner)
        {
            self.needs.nested.entry(inner.clone()).or_default();
        }
        Ok((format!("{}.{}", object.text, super::safe(name)), ty, object.shared))
    }

    /// The address of something: the index of an object.
    pub(super) fn address(&mut self, value: &Expr, of: &Expr) -> Lowered<Term> {
        let object = self.object(of)?;
        match object.index {
            Some(index) => {
                let ty = Type::Pointer(Box::new(Type::Struct(object.structure)));
                let simple = index.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                Ok(Term::own(if simple { index } else { format!("({index})") }, ty))
            }
            None => unknown(value, "a pointer into an object is not modelled"),
        }
    }

    /// Notes the variables and fields that Promela text of a check file names, because the model needs them.
    pub(super) fn mention(&mut self, text: &str) {
        let all = crate::c::tokens::tokens(text);
        for (at, token) in all.iter().enumerate() {
            let after_dot = at > 0 && all[at - 1] == ".";
            if after_dot {
                continue;
            }
            if let Some(fields) = self.unit.structs.get(*token)
                && all.get(at + 1) == Some(&"[")
            {
                let close = closing(&all[at + 1..]).map(|length| at + 1 + length);
                let field = close.filter(|close| all.get(close + 1) == Some(&"."));
                let field = field.and_then(|close| all.get(close + 2)).copied().unwrap_or("");
                let pool = self.needs.pools.entry((*token).to_owned()).or_default();
                match field {
                    "freed" => pool.freed = true,
                    "taken" => pool.allocated = true,
                    _ if fields.iter().any(|(name, _)| super::safe(name) == field) => {
                        pool.fields.insert(field.to_owned());
                    }
                    _ => {}
                }
            } else if let Some(declaration) = self.global(token) {
                if let Type::Struct(structure) = self.unit.resolve(&declaration.ty)
                    && !self.lock_types.contains(&structure)
                {
                    self.place_object(token, &structure, 1);
                    continue;
                }
                let ty = self.override_of(&[(*token).to_owned()]);
                let ty = ty.unwrap_or_else(|| self.unit.resolve(&declaration.ty));
                let modelled = match &ty {
                    Type::Array(of, Some(_)) => super::promela_type(of).is_some(),
                    other => super::promela_type(other).is_some(),
                };
                if modelled {
                    self.needs.globals.insert(super::safe(token), ty);
                }
            }
        }
    }
}

/// Where the bracket at the beginning of the tokens is closed.
fn closing(all: &[&str]) -> Option<usize> {
    let mut depth = 0_i32;
    all.iter().position(|token| {
        depth += i32::from(*token == "[") - i32::from(*token == "]");
        depth == 0
    })
}

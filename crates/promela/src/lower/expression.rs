//! The translation of expressions to values.

use super::{Lowered, Lowering, Term, Variable, promela_type, safe, unknown};
use crate::c::{Expr, ExprKind, Type};
use crate::table::{Action, Bindings, Match};

impl Lowering<'_> {
    /// The value of an expression; statements that have to come before it are emitted.
    pub(super) fn term(&mut self, value: &Expr) -> Lowered<Term> {
        let function = self.current_function();
        if let Some(found) = self.table.find(&value.text, &function) {
            match found.action {
                Action::Text(ref text) => return self.ruled(value, text, &found.bindings),
                Action::Hide | Action::Comment => {
                    return unknown(value, "its rule hides it, but its value is used");
                }
                Action::Either => return Ok(self.either()),
                Action::Keep => {}
            }
        }
        self.plain_term(value).map_err(|inner| match &value.kind {
            // The whole is what a rule can be about.
            ExprKind::Field { .. } | ExprKind::Index(..) => {
                super::Unknown { text: value.text.clone(), at: value.at.clone(), ..inner }
            }
            _ => inner,
        })
    }

    /// A value that may be true or false, as Spin chooses.
    fn either(&mut self) -> Term {
        let result = self.temporary(&Type::Bool);
        self.emit(format!("if :: {0} = false :: {0} = true fi;", result.text), false);
        Term::own(result.text, Type::Bool)
    }

    fn plain_term(&mut self, value: &Expr) -> Lowered<Term> {
        match &value.kind {
            ExprKind::Number(number) => Ok(Term::own(number.to_string(), Type::INT)),
            ExprKind::Name(name) => self.name(value, name),
            ExprKind::Unary(operator, inner) => self.unary(value, operator, inner),
            ExprKind::Binary(operator, left, right) => self.binary(value, operator, left, right),
            ExprKind::Field { .. } => {
                let (text, ty, shared) = self.member(value)?;
                Ok(Term { text, ty, shared })
            }
            ExprKind::Index(base, index) => self.element(value, base, index),
            ExprKind::AddressOf(inner) => self.address(value, inner),
            ExprKind::Cast(ty, inner) => self.cast(ty, inner),
            ExprKind::Conditional(condition, then, otherwise) => self.conditional(condition, then, otherwise),
            ExprKind::Comma(first, second) => {
                self.effect(first)?;
                self.term(second)
            }
            ExprKind::Assign(operator, target, source) => self.assign(operator, target, source),
            ExprKind::Update { operator, after, target } => self.update(*operator, *after, target),
            ExprKind::Call(..) => self.call(value, true),
            ExprKind::Deref(_) => unknown(value, "what a pointer points to as a whole is not modelled"),
            ExprKind::Text => unknown(value, "text is not modelled"),
            ExprKind::Other(what) => unknown(value, format!("'{what}' is not translated")),
        }
    }

    /// The Promela text of a rule, with its placeholders translated.
    fn ruled(&mut self, value: &Expr, text: &str, bindings: &Bindings) -> Lowered<Term> {
        let text = self.filled(value, text, bindings)?;
        let shared = crate::c::tokens::tokens(&text).iter().any(|token| self.is_shared_name(token));
        let simple = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        Ok(Term { text: if simple { text } else { format!("({text})") }, ty: Type::INT, shared })
    }

    pub(super) fn filled(&mut self, value: &Expr, text: &str, bindings: &Bindings) -> Lowered<String> {
        self.mention(text);
        let mut filled = text.to_owned();
        // Longer names first, so that one is not taken for the beginning of another.
        let mut names: Vec<&String> = bindings.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            let place = format!("${name}");
            if !filled.contains(&place) {
                continue;
            }
            let piece = &bindings[name];
            let translated = match self.snippet(piece) {
                Ok(inner) => {
                    let inner = Expr { at: value.at.clone(), ..at_place(inner, value) };
                    let term = self.term(&inner)?;
                    self.in_variable(term).text
                }
                Err(_) => piece.clone(),
            };
            filled = filled.replace(&place, &translated);
        }
        Ok(filled)
    }

    fn is_shared_name(&self, token: &str) -> bool {
        self.needs.globals.contains_key(token)
            || self.needs.pools.contains_key(token)
            || self.unit.globals.contains_key(token)
            || self.unit.structs.contains_key(token)
    }

    /// A name that is a local variable, a shared one or a constant.
    fn name(&mut self, value: &Expr, name: &str) -> Lowered<Term> {
        if let Some(variable) = self.lookup(name) {
            return match promela_type(&variable.ty) {
                Some(_) => Ok(Term { text: variable.text, ty: variable.ty, shared: variable.shared }),
                None => unknown(
                    value,
                    format!(
                        "'{name}' has type '{}': give it one in [types] (\"{}.{name}\") or write a rule",
                        variable.ty,
                        self.current_function()
                    ),
                ),
            };
        }
        if let Some(number) = self.unit.constants.get(name) {
            self.needs.constants.insert(safe(name), *number);
            return Ok(Term::own(safe(name), Type::INT));
        }
        if let Some(declaration) = self.global(name) {
            let ty =
                self.override_of(&[name.to_owned()]).unwrap_or_else(|| self.unit.resolve(&declaration.ty));
            if promela_type(&ty).is_none() {
                return unknown(
                    value,
                    format!("'{name}' has type '{ty}': give it one in [types] or write a rule"),
                );
            }
            self.needs.globals.insert(safe(name), ty.clone());
            return Ok(Term { text: safe(name), ty, shared: true });
        }
        if name == "NULL" {
            return Ok(Term::own("NULL", Type::Pointer(Box::new(Type::Void))));
        }
        unknown(value, format!("'{name}' is no variable of the source files"))
    }

    fn unary(&mut self, value: &Expr, operator: &str, inner: &Expr) -> Lowered<Term> {
        let term = self.term(inner)?;
        let text = match operator {
            "!" if term.is_pointer() => format!("({} == NULL)", term.text),
            "!" => format!("(!{})", term.text),
            "-" => match inner.kind {
                ExprKind::Number(_) => format!("-{}", term.text),
                _ => format!("(-{})", term.text),
            },
            "~" => format!("(~{})", term.text),
            "+" => term.text,
            _ => return unknown(value, format!("'{operator}' is not translated")),
        };
        let ty = if operator == "!" { Type::Bool } else { Type::INT };
        Ok(Term { text, ty, shared: term.shared })
    }

    fn binary(&mut self, value: &Expr, operator: &str, left: &Expr, right: &Expr) -> Lowered<Term> {
        if matches!(operator, "&&" | "||") {
            return self.junction(operator, left, right);
        }
        let mut first = self.term(left)?;
        if self.granular() && self.steps(right) {
            first = self.in_variable(first);
        }
        let second = self.term(right)?;
        let pointers = first.is_pointer() || second.is_pointer();
        if pointers && !matches!(operator, "==" | "!=") {
            return unknown(value, "arithmetic with pointers is not modelled");
        }
        let compares = matches!(operator, "==" | "!=" | "<" | ">" | "<=" | ">=");
        let ty = if compares { Type::Bool } else { Type::INT };
        let (first, second) = (null_beside(first, &second), second);
        let second = null_beside(second, &first);
        Ok(Term {
            text: format!("({} {operator} {})", first.text, second.text),
            ty,
            shared: first.shared || second.shared,
        })
    }

    /// `&&` and `||`: the right side only counts where the left side leaves it open.
    fn junction(&mut self, operator: &str, left: &Expr, right: &Expr) -> Lowered<Term> {
        let first = self.truth(left)?;
        let parted = self.emits(right) || (self.granular() && first.shared && self.steps(right));
        if !parted {
            let second = self.truth(right)?;
            return Ok(Term {
                text: format!("({} {operator} {})", first.text, second.text),
                ty: Type::Bool,
                shared: first.shared || second.shared,
            });
        }
        let result = self.temporary(&Type::INT);
        self.emit(format!("{} = {};", result.text, bare(&first.text)), first.shared);
        self.emit("if".to_owned(), false);
        let guard = if operator == "&&" { result.text.clone() } else { format!("!{}", result.text) };
        self.emit(format!(":: {guard} ->"), false);
        self.indent += 1;
        let second = self.truth(right);
        if let Ok(second) = &second {
            self.emit(format!("{} = {};", result.text, bare(&second.text)), second.shared);
        }
        self.indent -= 1;
        self.emit(":: else".to_owned(), false);
        self.emit("fi;".to_owned(), false);
        second.map(|_| Term::own(result.text, Type::INT))
    }

    /// The value of a condition, a pointer compared with null.
    pub(super) fn truth(&mut self, value: &Expr) -> Lowered<Term> {
        let term = self.term(value)?;
        match term.is_pointer() {
            true => Ok(Term { text: format!("({} != NULL)", term.text), ty: Type::Bool, ..term }),
            false => Ok(term),
        }
    }

    fn conditional(&mut self, condition: &Expr, then: &Expr, otherwise: &Expr) -> Lowered<Term> {
        let condition = self.truth(condition)?;
        let simple = !self.emits(then) && !self.emits(otherwise);
        if simple && !(self.granular() && (self.steps(then) || self.steps(otherwise))) {
            let (then, otherwise) = (self.term(then)?, self.term(otherwise)?);
            let ty = if then.is_pointer() { then.ty.clone() } else { otherwise.ty.clone() };
            let then = null_beside(then, &otherwise);
            let otherwise = null_beside(otherwise, &then);
            return Ok(Term {
                text: format!("({} -> {} : {})", condition.text, then.text, otherwise.text),
                ty,
                shared: condition.shared,
            });
        }
        let ty = self.type_of(then).or_else(|| self.type_of(otherwise)).unwrap_or(Type::INT);
        let result = self.temporary(&ty);
        self.emit("if".to_owned(), false);
        self.emit(format!(":: {} ->", condition.text), condition.shared);
        let mut outcome = Ok(());
        for (at, branch) in [then, otherwise].into_iter().enumerate() {
            if at == 1 {
                self.emit(":: else ->".to_owned(), condition.shared);
            }
            self.indent += 1;
            match self.term(branch) {
                Ok(term) => {
                    let term = fitting(&result.ty, term);
                    self.emit(format!("{} = {};", result.text, term.text), term.shared);
                }
                Err(unknown) => outcome = Err(unknown),
            }
            self.indent -= 1;
        }
        self.emit("fi;".to_owned(), false);
        outcome.map(|()| Term::own(result.text, result.ty))
    }

    fn element(&mut self, value: &Expr, base: &Expr, index: &Expr) -> Lowered<Term> {
        let (text, ty, shared) = match &base.kind {
            ExprKind::Name(name) => match (self.lookup(name), self.global(name)) {
                (Some(local), _) => (local.text, local.ty, local.shared),
                (None, Some(declaration)) => {
                    let ty = self.unit.resolve(&declaration.ty);
                    (safe(name), ty, true)
                }
                _ => return unknown(base, "it is no variable of the source files"),
            },
            ExprKind::Field { .. } => self.member(base)?,
            _ => return unknown(value, "only arrays that are variables or fields are modelled"),
        };
        let Type::Array(of, Some(size)) = &ty else {
            return unknown(
                value,
                format!("'{}' has type '{ty}', which is no array of known size", base.text),
            );
        };
        if promela_type(of).is_none() {
            return unknown(value, format!("its elements have type '{of}'"));
        }
        if let (true, ExprKind::Name(name)) = (shared, &base.kind) {
            self.needs.globals.insert(safe(name), Type::Array(of.clone(), Some(*size)));
        }
        let index = self.term(index)?;
        let index = self.in_variable(index);
        Ok(Term { text: format!("{text}[{}]", index.text), ty: (**of).clone(), shared })
    }

    fn cast(&mut self, ty: &Type, inner: &Expr) -> Lowered<Term> {
        let ty = self.unit.resolve(ty);
        if let (Type::Pointer(_), ExprKind::Number(0)) = (&ty, &inner.kind) {
            return Ok(Term::own("NULL", ty));
        }
        let term = self.term(inner)?;
        Ok(match (&ty, &term.ty) {
            (Type::Pointer(_), Type::Pointer(to)) if **to == Type::Void => Term { ty, ..term },
            (Type::Pointer(_), _) | (Type::Void, _) => term,
            (Type::Integer { bits: 8, signed: false }, Type::Integer { bits, .. }) if *bits > 8 => {
                Term { text: format!("({} & 255)", term.text), ty, ..term }
            }
            (Type::Bool, _) => fitting(&Type::Bool, term),
            _ => Term { ty, ..term },
        })
    }

    /// The value in a form that changes no more: a shared variable is read into a temporary.
    pub(super) fn in_variable(&mut self, term: Term) -> Term {
        if !term.shared || !self.granular() {
            return term;
        }
        let ty = if promela_type(&term.ty).is_some() { term.ty.clone() } else { Type::INT };
        let temporary = self.temporary(&ty);
        self.emit(format!("{} = {};", temporary.text, term.text), true);
        Term::own(temporary.text, term.ty)
    }

    // ---- Assignments ----

    pub(super) fn assign(&mut self, operator: &str, target: &Expr, source: &Expr) -> Lowered<Term> {
        if operator.is_empty()
            && let Some((name, _)) = strip(source).called()
            && self.check.heaps.iter().any(|heap| heap.alloc == name)
        {
            return self.allocate(target, source);
        }
        if self.is_hidden(target) {
            // Where it goes is not modelled, but what happens on the way is.
            return self.term(source).map(|term| self.in_variable(term));
        }
        let target_first = self.steps_inside(target);
        let place = if target_first { Some(self.variable(target)?) } else { None };
        let mut term = self.term(source)?;
        let place = match place {
            Some(place) => place,
            None => self.variable(target)?,
        };
        if !operator.is_empty() {
            let old = Term { text: place.text.clone(), ty: place.ty.clone(), shared: place.shared };
            let old = if term.shared || place.shared { self.in_variable(old) } else { old };
            term =
                Term { text: format!("{} {operator} {}", old.text, term.text), ty: place.ty.clone(), ..term };
        }
        if place.shared && term.shared {
            let ty = term.ty.clone();
            term = self.in_variable(Term { ty, ..term });
        }
        let term = fitting(&place.ty, term);
        if term.text != place.text {
            self.emit(format!("{} = {};", place.text, bare(&term.text)), place.shared || term.shared);
        }
        Ok(match place.shared && self.granular() {
            true => Term::own(term.text, place.ty),
            false => Term { text: place.text, ty: place.ty, shared: place.shared },
        })
    }

    pub(super) fn update(&mut self, operator: char, after: bool, target: &Expr) -> Lowered<Term> {
        if self.is_hidden(target) {
            return Ok(Term::own("0", Type::INT));
        }
        let place = self.variable(target)?;
        let old = Term { text: place.text.clone(), ty: place.ty.clone(), shared: place.shared };
        if place.ty.points_to().is_some() {
            return unknown(target, "arithmetic with pointers is not modelled");
        }
        let old = match (after, place.shared && self.granular()) {
            (_, true) => self.in_variable(old),
            (true, false) => old,
            (false, false) => {
                let kept = self.temporary(&place.ty);
                self.emit(format!("{} = {};", kept.text, old.text), old.shared);
                Term::own(kept.text, place.ty.clone())
            }
        };
        self.emit(format!("{} = {} {operator} 1;", place.text, old.text), place.shared);
        Ok(match (after, place.shared) {
            (true, true) => Term::own(format!("({} {operator} 1)", old.text), place.ty),
            (true, false) => Term::own(place.text, place.ty),
            (false, _) => Term::own(old.text, place.ty),
        })
    }

    /// Whether a rule says that what is assigned to is not modelled.
    fn is_hidden(&mut self, target: &Expr) -> bool {
        let function = self.current_function();
        let found = self.table.find(&target.text, &function);
        found.is_some_and(|found| matches!(found.action, Action::Hide | Action::Comment))
    }

    /// The variable that an expression names, for an assignment.
    pub(super) fn variable(&mut self, target: &Expr) -> Lowered<Variable> {
        let term = match &target.kind {
            ExprKind::Name(_) | ExprKind::Field { .. } | ExprKind::Index(..) | ExprKind::Cast(..) => {
                self.term(target)?
            }
            _ => return unknown(target, "this cannot be assigned to in a model"),
        };
        if matches!(term.ty, Type::Struct(_)) {
            return unknown(target, "a structure is not assigned as a whole");
        }
        if term.text.starts_with(|c: char| c.is_ascii_digit() || c == '(') {
            return unknown(target, "its rule gives a value, and it is assigned to");
        }
        Ok(Variable { text: term.text, ty: term.ty, shared: term.shared })
    }

    // ---- What an expression does, without doing it ----

    /// Whether evaluating takes a step of its own that others may see: a read of a shared variable, or more.
    pub(super) fn steps(&self, value: &Expr) -> bool {
        match &value.kind {
            ExprKind::Name(name) => self.lookup(name).is_none() && self.global(name).is_some(),
            ExprKind::Field { .. } | ExprKind::Call(..) => true,
            ExprKind::AddressOf(inner) => self.steps_inside(inner),
            _ => value.parts().iter().any(|part| self.steps(part)),
        }
    }

    /// Whether finding the place of an expression, without reading it, takes a step that others may see.
    fn steps_inside(&self, value: &Expr) -> bool {
        match &value.kind {
            ExprKind::Name(_) => false,
            ExprKind::Field { base, arrow: true, .. } => self.steps(base),
            ExprKind::Field { base, arrow: false, .. } => self.steps_inside(base),
            ExprKind::Index(base, index) => self.steps_inside(base) || self.steps(index),
            _ => value.parts().iter().any(|part| self.steps(part)),
        }
    }

    /// Whether evaluating emits statements.
    pub(super) fn emits(&self, value: &Expr) -> bool {
        let checks = self.check.property.freed && !self.check.heaps.is_empty();
        let here = match &value.kind {
            ExprKind::Assign(..) | ExprKind::Update { .. } | ExprKind::Call(..) | ExprKind::Comma(..) => true,
            ExprKind::Field { base, arrow: true, .. } => {
                (checks && !matches!(base.kind, ExprKind::AddressOf(_)))
                    || (self.granular() && self.steps(base))
            }
            ExprKind::Index(base, index) => self.granular() && (self.steps_inside(base) || self.steps(index)),
            ExprKind::Binary(_, left, right) => self.granular() && self.steps(left) && self.steps(right),
            ExprKind::Conditional(_, then, otherwise) => self.steps(then) || self.steps(otherwise),
            _ => false,
        };
        here || value.parts().iter().any(|part| self.emits(part))
    }

    /// The type of an expression, where that is easily said.
    pub(super) fn type_of(&self, value: &Expr) -> Option<Type> {
        match &value.kind {
            ExprKind::Name(name) => match self.lookup(name) {
                Some(variable) => Some(variable.ty),
                None => self.global(name).map(|declaration| self.unit.resolve(&declaration.ty)),
            },
            ExprKind::Field { base, name, arrow } => {
                let structure = match (self.type_of(base)?, arrow) {
                    (Type::Pointer(to), true) => *to,
                    (ty, false) => ty,
                    _ => return None,
                };
                let Type::Struct(structure) = structure else { return None };
                let fields = self.unit.structs.get(&structure)?;
                let (_, ty) = fields.iter().find(|(field, _)| field == name)?;
                let key = format!("{structure}.{name}");
                Some(self.override_of(&[key]).unwrap_or_else(|| self.unit.resolve(ty)))
            }
            ExprKind::Cast(ty, _) => Some(self.unit.resolve(ty)),
            ExprKind::Call(..) => {
                let (name, _) = value.called()?;
                Some(self.unit.resolve(&self.unit.functions.get(name)?.returns))
            }
            ExprKind::Assign(_, target, _) => self.type_of(target),
            ExprKind::AddressOf(inner) => Some(Type::Pointer(Box::new(self.type_of(inner)?))),
            _ => None,
        }
    }

    /// The rule that matches a condition as a whole.
    pub(super) fn condition_rule(&mut self, condition: &Expr) -> Option<Match> {
        let function = self.current_function();
        self.table.find(&condition.text, &function).filter(|found| found.action != Action::Keep)
    }
}

/// The expression inside of casts.
pub(super) fn strip(value: &Expr) -> &Expr {
    match &value.kind {
        ExprKind::Cast(_, inner) => strip(inner),
        _ => value,
    }
}

/// Text without the parentheses around all of it.
pub(super) fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return text };
    if inner.contains(" -> ") {
        return text;
    }
    let mut depth = 0_i32;
    for character in inner.chars() {
        depth += i32::from(character == '(') - i32::from(character == ')');
        if depth < 0 {
            return text;
        }
    }
    inner
}

/// A zero that stands beside a pointer is the null pointer.
fn null_beside(term: Term, other: &Term) -> Term {
    if other.is_pointer() { null_for(&other.ty, term) } else { term }
}

fn null_for(ty: &Type, term: Term) -> Term {
    match ty {
        Type::Pointer(_) if term.text == "0" && !term.is_pointer() => Term::own("NULL", ty.clone()),
        _ => term,
    }
}

/// The value as a variable of a type holds it.
pub(super) fn fitting(ty: &Type, term: Term) -> Term {
    match (ty, &term.ty) {
        (Type::Bool, Type::Bool) => term,
        (Type::Bool, Type::Pointer(_)) => {
            Term { text: format!("({} != NULL)", term.text), ty: Type::Bool, ..term }
        }
        (Type::Bool, _) if matches!(term.text.as_str(), "0" | "1") => Term { ty: Type::Bool, ..term },
        (Type::Bool, _) => Term { text: format!("({} != 0)", term.text), ty: Type::Bool, ..term },
        _ => null_for(ty, term),
    }
}

fn at_place(inner: Expr, value: &Expr) -> Expr {
    Expr { at: value.at.clone(), ..inner }
}

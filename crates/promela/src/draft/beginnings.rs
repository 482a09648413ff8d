//! What the objects of a model hold before its processes run: what the source itself gives them where it
//! makes one.
//!
//! An object that a process is handed was made by somebody. A function that allocates one (`p = kalloc()`),
//! or whose name says that it initialises its parameter, and that then stores constants in it without a
//! condition, says what it begins with. What is stored under a condition or computed is left to a person.

use crate::c::{Expr, ExprKind, Function, Stmt, StmtKind, Unit};
use crate::check::Check;
use std::collections::BTreeMap;

/// Promela that sets up the objects that processes are given by number; `is_modelled` knows the fields of
/// structures that are in the model.
pub(super) fn beginnings(unit: &Unit, check: &Check, is_modelled: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut done: Vec<(String, &str)> = Vec::new();
    for process in &check.processes {
        let Some(function) = unit.functions.get(&process.function) else { continue };
        for ((_, ty), argument) in function.parameters.iter().zip(&process.arguments) {
            let (Some(structure), Some(number)) =
                (unit.resolve(ty).points_to().map(str::to_owned), argument.strip_prefix('@'))
            else {
                continue;
            };
            if done.contains(&(structure.clone(), number)) {
                continue;
            }
            let made = unit.functions.values().map(|maker| stored(unit, maker, &structure));
            let fields = made.into_iter().find(|fields| !fields.is_empty()).unwrap_or_default();
            for (field, value) in fields.iter().filter(|(field, value)| **value != 0 && is_modelled(field)) {
                text += &format!("{structure}[{number}].{field} = {value};\n");
            }
            done.push((structure, number));
        }
    }
    text
}

/// The constants that a function stores in an object of the structure that it makes.
fn stored(unit: &Unit, maker: &Function, structure: &str) -> BTreeMap<String, i64> {
    let points = |ty| unit.resolve(ty).points_to() == Some(structure);
    let mut made: Vec<&str> = Vec::new();
    if maker.name.contains("init") {
        made.extend(maker.parameters.iter().filter(|(_, ty)| points(ty)).map(|(name, _)| name.as_str()));
    }
    let mut declared = Vec::new();
    declarations(&maker.body, &mut declared);
    for (name, ty) in declared {
        if points(ty) && allocates(&maker.body, name) {
            made.push(name);
        }
    }
    let StmtKind::Block(body) = &maker.body.kind else { return BTreeMap::new() };
    let constant = |stmt: &Stmt| {
        let StmtKind::Expr(value) = &stmt.kind else { return None };
        let ExprKind::Assign(operator, target, value) = &value.kind else { return None };
        let ExprKind::Field { base, name, arrow: true } = &target.kind else { return None };
        let own = matches!(&base.kind, ExprKind::Name(base) if made.contains(&base.as_str()));
        (own && operator.is_empty()).then(|| Some((name.clone(), unit.constant(value)?)))?
    };
    body.iter().filter_map(constant).collect()
}

fn declarations<'a>(stmt: &'a Stmt, found: &mut Vec<(&'a str, &'a crate::c::Type)>) {
    if let StmtKind::Declare(declaration) = &stmt.kind {
        found.push((&declaration.name, &declaration.ty));
    }
    stmt.parts().into_iter().for_each(|part| declarations(part, found));
}

/// Whether the variable is given what a call returns, anywhere in the statement.
fn allocates(stmt: &Stmt, variable: &str) -> bool {
    fn is_call(value: &Expr) -> bool {
        match &value.kind {
            ExprKind::Cast(_, inner) => is_call(inner),
            kind => matches!(kind, ExprKind::Call(..)),
        }
    }
    fn inside(value: &Expr, variable: &str) -> bool {
        let given = |target: &Expr| matches!(&target.kind, ExprKind::Name(name) if name == variable);
        match &value.kind {
            ExprKind::Assign(_, target, value) if given(target) && is_call(value) => true,
            _ => value.parts().iter().any(|part| inside(part, variable)),
        }
    }
    let declared = matches!(&stmt.kind, StmtKind::Declare(declaration)
        if declaration.name == variable && declaration.value.as_ref().is_some_and(is_call));
    declared
        || stmt.expressions().iter().any(|value| inside(value, variable))
        || stmt.parts().iter().any(|part| allocates(part, variable))
}

//! Statements and control flow.

use super::expression::{bare, fitting, strip};
use super::{Jump, Lowered, Lowering, Term, Unknown, Variable, promela_type, unknown};
use crate::c::{Declaration, Expr, ExprKind, Place, Stmt, StmtKind, Type};
use crate::check::{DefaultAction, DefaultCondition};
use crate::table::Action;

/// A condition as two guards: one for the branch where it holds, and one for the other.
struct Guards {
    holds: String,
    not: String,
    access: bool,
    /// Whether neither guard needs a statement before it.
    direct: bool,
}

impl Lowering<'_> {
    /// Translates the body of a function, whose last `return` needs no jump.
    pub(super) fn body(&mut self, body: &Stmt) {
        let StmtKind::Block(all) = &body.kind else { return };
        self.labels_of(body);
        let last = all.last();
        for stmt in all {
            match (&stmt.kind, last.is_some_and(|last| std::ptr::eq(last, stmt))) {
                (StmtKind::Return(value), true) => self.give_back(stmt, value.as_ref()),
                _ => self.stmt(stmt),
            }
        }
    }

    /// Gives the labels of a function names of their own.
    fn labels_of(&mut self, stmt: &Stmt) {
        if let StmtKind::Label(name, _) = &stmt.kind {
            let fresh = self.fresh(name);
            if let Some(inside) = self.activations.last_mut() {
                inside.labels.insert(name.clone(), fresh);
            }
        }
        for part in stmt.parts() {
            self.labels_of(part);
        }
    }

    /// Counts a statement of the source, once however often it is expanded.
    fn count(&mut self, at: &Place, text: &str, which: Counted) {
        if !self.counted.insert((at.clone(), text.to_owned())) {
            return;
        }
        match which {
            Counted::ByItself => self.share.by_itself += 1,
            Counted::ByRule => self.share.by_rule += 1,
            Counted::Not => self.share.not += 1,
        }
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        self.at = Some((stmt.at.clone(), stmt.text.clone()));
        match &stmt.kind {
            StmtKind::Empty => {}
            StmtKind::Block(all) => {
                self.open_scope();
                for inner in all {
                    self.stmt(inner);
                }
                self.close_scope();
            }
            StmtKind::Group(all) => {
                for inner in all {
                    self.stmt(inner);
                }
            }
            StmtKind::Expr(value) => self.simple(stmt, |lowering| lowering.effect(value)),
            StmtKind::Declare(declaration) => self.declaration(stmt, declaration),
            StmtKind::If { condition, then, otherwise } => self.branch(condition, then, otherwise.as_deref()),
            StmtKind::While { condition, body } => self.repeat(Some(condition), body, None),
            StmtKind::DoWhile { body, condition } => self.do_while(body, condition),
            StmtKind::For { begin, condition, update, body } => {
                self.open_scope();
                if let Some(begin) = begin {
                    self.stmt(begin);
                }
                self.repeat(condition.as_ref(), body, update.as_ref());
                self.close_scope();
            }
            StmtKind::Switch { value, body } => self.switch(value, body),
            StmtKind::Case { body, .. } => {
                // Only reached when the label stands outside of a switch's own block.
                for inner in body {
                    self.stmt(inner);
                }
            }
            StmtKind::Label(name, inner) => {
                let label = self.activations.last().and_then(|inside| inside.labels.get(name).cloned());
                self.plain(format!("{}: skip;", label.unwrap_or_else(|| super::safe(name))));
                self.stmt(inner);
            }
            StmtKind::Goto(name) => {
                let label = self.activations.last().and_then(|inside| inside.labels.get(name).cloned());
                self.count(&stmt.at, &stmt.text, Counted::ByItself);
                self.emit(format!("goto {};", label.unwrap_or_else(|| super::safe(name))), false);
            }
            StmtKind::Break | StmtKind::Continue => self.jump(stmt),
            StmtKind::Return(value) => {
                self.give_back(stmt, value.as_ref());
                if let Some(inside) = self.activations.last_mut() {
                    inside.returned = true;
                    let label = inside.return_label.clone();
                    self.emit(format!("goto {label};"), false);
                }
            }
            StmtKind::Other(what) => {
                let why = format!("'{what}' is not translated");
                let value = Unknown { at: stmt.at.clone(), text: stmt.text.clone(), why };
                self.simple(stmt, |_| Err(value));
            }
        }
    }

    fn open_scope(&mut self) {
        if let Some(inside) = self.activations.last_mut() {
            inside.scopes.push(std::collections::BTreeMap::new());
        }
    }

    fn close_scope(&mut self) {
        if let Some(inside) = self.activations.last_mut() {
            inside.scopes.pop();
        }
    }

    /// Translates one statement: by its rule, by itself, by the default, or not at all.
    fn simple(&mut self, stmt: &Stmt, lower: impl FnOnce(&mut Self) -> Lowered<()>) {
        let function = self.current_function();
        if let Some(found) = self.table.find(&stmt.text, &function)
            && found.action != Action::Keep
        {
            self.count(&stmt.at, &stmt.text, Counted::ByRule);
            return match &found.action {
                Action::Comment => self.remark(&stmt.text),
                Action::Text(text) => {
                    let whole = Expr {
                        kind: ExprKind::Other("statement".to_owned()),
                        at: stmt.at.clone(),
                        text: stmt.text.clone(),
                    };
                    match self.filled(&whole, text, &found.bindings) {
                        Ok(text) => self.ruled_lines(&text),
                        Err(unknown) => self.record(unknown),
                    }
                }
                Action::Either => self.record(Unknown {
                    at: stmt.at.clone(),
                    text: stmt.text.clone(),
                    why: "'either' is for values and conditions".to_owned(),
                }),
                Action::Hide | Action::Keep => {}
            };
        }
        let before = (self.lines.len(), self.indent);
        let result = lower(self);
        let Err(unknown) = result else {
            self.count(&stmt.at, &stmt.text, Counted::ByItself);
            return;
        };
        self.lines.truncate(before.0);
        self.indent = before.1;
        self.count(&stmt.at, &stmt.text, Counted::Not);
        let call = matches!(&stmt.kind, StmtKind::Expr(value) if value.called().is_some());
        let default = if call { self.check.default.call } else { self.check.default.assign };
        match default {
            DefaultAction::List => self.record(unknown),
            DefaultAction::Hide => {}
            DefaultAction::Comment => self.remark(&stmt.text),
        }
    }

    fn remark(&mut self, text: &str) {
        self.plain(format!("/* {} */", text.replace("*/", "* /")));
    }

    /// Adds the lines of a rule, each a statement.
    fn ruled_lines(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let end = if line.ends_with([';', '{', ':']) || line.ends_with("->") { "" } else { ";" };
            let opens = matches!(line, "if" | "do" | "atomic" | "d_step") || line.starts_with("::");
            let access = !matches!(line.trim_end_matches(';'), "if" | "fi" | "do" | "od" | "skip" | "true");
            self.emit(format!("{line}{}", if opens { "" } else { end }), access);
        }
    }

    /// Translates an expression for its effect.
    pub(super) fn effect(&mut self, value: &Expr) -> Lowered<()> {
        let value = strip(value);
        let function = self.current_function();
        if let Some(found) = self.table.find(&value.text, &function) {
            match &found.action {
                Action::Text(text) => {
                    let text = self.filled(value, text, &found.bindings)?;
                    self.ruled_lines(&text);
                    return Ok(());
                }
                Action::Hide | Action::Comment => return Ok(()),
                Action::Either | Action::Keep => {}
            }
        }
        match &value.kind {
            ExprKind::Assign(operator, target, source) => self.assign(operator, target, source).map(drop),
            ExprKind::Update { operator, target, .. } => self.update(*operator, true, target).map(drop),
            ExprKind::Call(..) => self.call(value, false).map(drop),
            ExprKind::Comma(first, second) => {
                self.effect(first)?;
                self.effect(second)
            }
            ExprKind::Conditional(condition, then, otherwise) => {
                let guards = self.guards(condition)?;
                self.open_branch(&guards);
                let first = self.effect(then);
                self.other_branch(&guards);
                let second = self.effect(otherwise);
                self.close_branch();
                first.and(second)
            }
            ExprKind::Number(_) => Ok(()),
            _ => {
                // A value that nobody uses: what it reads is read.
                let term = self.term(value)?;
                self.in_variable(term);
                Ok(())
            }
        }
    }

    fn declaration(&mut self, stmt: &Stmt, declaration: &Declaration) {
        let key = format!("{}.{}", self.current_function(), declaration.name);
        let ty = self.override_of(&[key]).unwrap_or_else(|| self.unit.resolve(&declaration.ty));
        if declaration.is_static {
            let why = "a static variable inside of a function is not modelled".to_owned();
            let value = Unknown { at: stmt.at.clone(), text: stmt.text.clone(), why };
            return self.simple(stmt, |_| Err(value));
        }
        let name = self.fresh(&declaration.name);
        let modelled = match &ty {
            Type::Array(of, Some(_)) => promela_type(of).is_some(),
            other => promela_type(other).is_some(),
        };
        if modelled {
            self.declare(&name, &ty);
        }
        let variable = Variable { text: name.clone(), ty: ty.clone(), shared: false };
        if let Some(scope) = self.activations.last_mut().and_then(|inside| inside.scopes.last_mut()) {
            scope.insert(declaration.name.clone(), variable);
        }
        let Some(value) = &declaration.value else { return };
        let target = Expr {
            kind: ExprKind::Name(declaration.name.clone()),
            at: stmt.at.clone(),
            text: declaration.name.clone(),
        };
        self.simple(stmt, |lowering| lowering.assign("", &target, value).map(drop));
    }

    fn give_back(&mut self, stmt: &Stmt, value: Option<&Expr>) {
        self.at = Some((stmt.at.clone(), stmt.text.clone()));
        let Some(value) = value else {
            return self.count(&stmt.at, &stmt.text, Counted::ByItself);
        };
        let result = self.activations.last().and_then(|inside| inside.result.clone());
        self.simple(stmt, |lowering| match result {
            Some(result) => {
                let term = lowering.term(value)?;
                let term = fitting(&result.ty, term);
                lowering.emit(format!("{} = {};", result.text, bare(&term.text)), term.shared);
                Ok(())
            }
            // Nobody asked for the value.
            None if acts(value) => lowering.effect(value),
            None => Ok(()),
        });
    }

    // ---- Conditions ----

    /// The guards that decide a branch; statements that have to come before them are emitted.
    fn guards(&mut self, condition: &Expr) -> Lowered<Guards> {
        let before = self.lines.len();
        if let Some(found) = self.condition_rule(condition) {
            // What is not modelled may be either.
            if !matches!(found.action, Action::Text(_)) {
                self.count(&condition.at, &condition.text, Counted::ByRule);
                let (holds, not) = ("true".to_owned(), "true".to_owned());
                return Ok(Guards { holds, not, access: false, direct: true });
            }
            let Action::Text(text) = &found.action else {
                return unknown(condition, "a condition cannot be left out: write true, false or a guard");
            };
            let holds = self.filled(condition, text, &found.bindings)?;
            let direct = self.lines.len() == before;
            let not = found.otherwise.unwrap_or_else(|| "else".to_owned());
            self.count(&condition.at, &condition.text, Counted::ByRule);
            return Ok(Guards { holds: format!("({})", bare(&holds)), not, access: true, direct });
        }
        let term = self.truth(condition)?;
        let direct = self.lines.len() == before;
        self.count(&condition.at, &condition.text, Counted::ByItself);
        let holds = format!("({})", bare(&term.text));
        Ok(Guards { holds, not: "else".to_owned(), access: term.shared, direct })
    }

    /// The guards of a condition, or those of the default for what has none.
    fn guards_or_default(&mut self, condition: &Expr) -> Guards {
        let before = (self.lines.len(), self.indent);
        self.at = Some((condition.at.clone(), condition.text.clone()));
        match self.guards(condition) {
            Ok(guards) => guards,
            Err(unknown) => {
                self.lines.truncate(before.0);
                self.indent = before.1;
                self.count(&condition.at, &condition.text, Counted::Not);
                if self.check.default.condition == DefaultCondition::List {
                    self.record_condition(unknown);
                }
                Guards { holds: "true".to_owned(), not: "true".to_owned(), access: false, direct: true }
            }
        }
    }

    fn open_branch(&mut self, guards: &Guards) {
        self.emit("if".to_owned(), false);
        self.emit(format!(":: {} ->", guards.holds), guards.access);
        self.indent += 1;
    }

    fn other_branch(&mut self, guards: &Guards) {
        self.indent -= 1;
        self.emit(format!(":: {} ->", guards.not), guards.access);
        self.indent += 1;
    }

    fn close_branch(&mut self) {
        self.indent -= 1;
        self.plain("fi;".to_owned());
    }

    fn branch(&mut self, condition: &Expr, then: &Stmt, otherwise: Option<&Stmt>) {
        let guards = self.guards_or_default(condition);
        let decided = self.at.clone();
        self.open_branch(&guards);
        self.stmt(then);
        self.at = decided;
        self.other_branch(&guards);
        if let Some(otherwise) = otherwise {
            self.stmt(otherwise);
        }
        self.close_branch();
    }

    // ---- Loops ----

    fn enter_loop(&mut self) -> String {
        let label = self.fresh("continue");
        let jump = Jump { break_to: None, continue_to: Some(label.clone()), continued: false, is_loop: true };
        if let Some(inside) = self.activations.last_mut() {
            inside.jumps.push(jump);
        }
        label
    }

    fn leave_jump(&mut self) -> Option<Jump> {
        self.activations.last_mut().and_then(|inside| inside.jumps.pop())
    }

    /// Translates `while` and `for`.
    fn repeat(&mut self, condition: Option<&Expr>, body: &Stmt, update: Option<&Expr>) {
        let constant = condition.map_or(Some(1), |condition| self.unit.constant(condition));
        self.plain("do".to_owned());
        let first = self.lines.len();
        self.indent += 1;
        let guards = match (condition, constant) {
            (Some(condition), None) => Some(self.guards_or_default(condition)),
            _ => None,
        };
        self.indent -= 1;
        let decided = self.at.clone();
        let direct = match &guards {
            Some(guards) if guards.direct => {
                self.emit(format!(":: {} ->", guards.holds), guards.access);
                self.indent += 1;
                true
            }
            Some(guards) => {
                let prefix = super::Line { text: ":: true ->".to_owned(), indent: self.indent, origin: None };
                self.lines.insert(first, prefix);
                self.indent += 1;
                self.emit("if".to_owned(), false);
                self.emit(format!(":: {}", guards.holds), guards.access);
                self.emit(format!(":: {} -> break", guards.not), guards.access);
                self.plain("fi;".to_owned());
                false
            }
            None => {
                let never = constant == Some(0);
                self.plain(if never { ":: false ->" } else { ":: true ->" }.to_owned());
                self.indent += 1;
                false
            }
        };
        let label = self.enter_loop();
        self.stmt(body);
        if self.leave_jump().is_some_and(|jump| jump.continued) {
            self.plain(format!("{label}: skip;"));
        }
        if let Some(update) = update {
            let stmt = Stmt {
                kind: StmtKind::Expr(update.clone()),
                at: update.at.clone(),
                text: update.text.clone(),
            };
            self.stmt(&stmt);
        }
        self.indent -= 1;
        match &guards {
            Some(guards) if direct => {
                self.at = decided;
                self.emit(format!(":: {} -> break", guards.not), guards.access);
            }
            None if constant == Some(0) => self.plain(":: else -> break".to_owned()),
            _ => {}
        }
        self.plain("od;".to_owned());
    }

    fn do_while(&mut self, body: &Stmt, condition: &Expr) {
        let constant = self.unit.constant(condition);
        let jumps = contains_break(body);
        if constant == Some(0) && !jumps {
            // The usual dress of a macro.
            return self.stmt(body);
        }
        self.plain("do".to_owned());
        self.plain(":: true ->".to_owned());
        self.indent += 1;
        let label = self.enter_loop();
        self.stmt(body);
        if self.leave_jump().is_some_and(|jump| jump.continued) {
            self.plain(format!("{label}: skip;"));
        }
        match constant {
            Some(0) => self.plain("break;".to_owned()),
            Some(_) => {}
            None => {
                let guards = self.guards_or_default(condition);
                self.emit("if".to_owned(), false);
                self.emit(format!(":: {}", guards.holds), guards.access);
                self.emit(format!(":: {} -> break", guards.not), guards.access);
                self.plain("fi;".to_owned());
            }
        }
        self.indent -= 1;
        self.plain("od;".to_owned());
    }

    fn jump(&mut self, stmt: &Stmt) {
        self.count(&stmt.at, &stmt.text, Counted::ByItself);
        let is_break = stmt.kind == StmtKind::Break;
        let text = self.activations.last_mut().and_then(|inside| {
            if is_break {
                let jump = inside.jumps.last_mut()?;
                jump.continued |= !jump.is_loop;
                return Some(match &jump.break_to {
                    Some(label) => format!("goto {label};"),
                    None => "break;".to_owned(),
                });
            }
            let jump = inside.jumps.iter_mut().rev().find(|jump| jump.is_loop)?;
            jump.continued = true;
            jump.continue_to.as_ref().map(|label| format!("goto {label};"))
        });
        match text {
            Some(text) => self.emit(text, false),
            None => self.record(Unknown {
                at: stmt.at.clone(),
                text: stmt.text.clone(),
                why: "it is outside of a loop".to_owned(),
            }),
        }
    }

    // ---- switch ----

    fn switch(&mut self, value: &Expr, body: &Stmt) {
        let StmtKind::Block(all) = &body.kind else { return self.stmt(body) };
        let before = self.lines.len();
        let term = match self.term(value) {
            Ok(term) => {
                self.count(&value.at, &value.text, Counted::ByItself);
                self.in_variable(term)
            }
            Err(unknown) => {
                self.lines.truncate(before);
                self.count(&value.at, &value.text, Counted::Not);
                if self.check.default.condition == DefaultCondition::List {
                    self.record_condition(unknown);
                }
                Term::own("", Type::INT)
            }
        };
        let end = self.fresh("after_switch");
        let mut cases = Vec::new();
        for stmt in all {
            if let StmtKind::Case { value, .. } = &stmt.kind {
                cases.push((value.clone(), self.fresh("case")));
            }
        }
        self.plain("if".to_owned());
        let mut default = end.clone();
        for (case, label) in &cases {
            let Some(case) = case else {
                default.clone_from(label);
                continue;
            };
            match self.term(case) {
                Ok(number) if term.text.is_empty() => {
                    let _ = number;
                    self.emit(format!(":: true -> goto {label}"), false);
                }
                Ok(number) => {
                    self.emit(format!(":: ({} == {}) -> goto {label}", term.text, number.text), false)
                }
                Err(unknown) => self.record(unknown),
            }
        }
        let otherwise = if term.text.is_empty() { "true" } else { "else" };
        self.emit(format!(":: {otherwise} -> goto {default}"), false);
        self.plain("fi;".to_owned());
        let continue_to = self.activations.last().and_then(|inside| {
            inside.jumps.iter().rev().find(|jump| jump.is_loop).and_then(|jump| jump.continue_to.clone())
        });
        let jump = Jump { break_to: Some(end.clone()), continue_to, continued: false, is_loop: false };
        if let Some(inside) = self.activations.last_mut() {
            inside.jumps.push(jump);
        }
        self.open_scope();
        let mut labels = cases.into_iter().map(|(_, label)| label);
        for stmt in all {
            if matches!(stmt.kind, StmtKind::Case { .. })
                && let Some(label) = labels.next()
            {
                self.plain(format!("{label}: skip;"));
            }
            self.stmt(stmt);
        }
        self.close_scope();
        self.leave_jump();
        self.plain(format!("{end}: skip;"));
    }
}

#[derive(Clone, Copy)]
enum Counted {
    ByItself,
    ByRule,
    Not,
}

/// Whether an expression does something beside having a value.
fn acts(value: &Expr) -> bool {
    matches!(value.kind, ExprKind::Assign(..) | ExprKind::Update { .. } | ExprKind::Call(..))
        || value.parts().iter().any(|part| acts(part))
}

/// Whether a loop's body leaves it, or goes on with its next round, by itself.
fn contains_break(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::While { .. } | StmtKind::DoWhile { .. } | StmtKind::For { .. } => false,
        _ => stmt.parts().iter().any(|part| contains_break(part)),
    }
}

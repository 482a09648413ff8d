//! From the text of a translation unit to its functions, variables and types.
//!
//! The text has been through the C preprocessor: its line markers (`# 12 "file.c"`) say where each line was
//! written, so that places stay true. The grammar is tree-sitter's, which goes on after what it does not
//! understand: an error is only one where it lies in a function that is wanted.
//!
//! Limits: `a * b;` is a declaration to the grammar where `a` could be a type. Bit fields are plain integers.
//! What differs by the size of `long` follows a 32-bit processor unless the caller says otherwise.

use super::lines::{TYPEOF, without_markers};
use super::syntax::{Declaration, Expr, ExprKind, Function, Place, Stmt, StmtKind, Type};
use super::tokens::single_blanks;
use super::unit::Unit;
use std::collections::BTreeSet;
use std::sync::Arc;
use tree_sitter::{Node, Parser};

struct Reader<'a> {
    text: &'a str,
    /// The place of each line of `text`.
    places: Vec<Place>,
    unit: Unit,
    /// How many structures without a tag there are, for their names.
    nameless: u32,
    /// Functions whose calls the compiler refuses unless it can rule them out, so that such a call never
    /// happens.
    refused: BTreeSet<String>,
}

/// Reads preprocessed text; `name` is the file it is from where no marker says otherwise.
#[must_use]
pub fn parse(name: &str, text: &str, word_bits: u8) -> Unit {
    let (plain, places) = without_markers(name, text);
    let mut parser = Parser::new();
    if parser.set_language(&tree_sitter_c::LANGUAGE.into()).is_err() {
        return Unit::default();
    }
    let Some(tree) = parser.parse(&plain, None) else { return Unit::default() };
    let unit = Unit { word_bits, ..Unit::default() };
    let mut reader = Reader { text: &plain, places, unit, nameless: 0, refused: BTreeSet::new() };
    reader.top(tree.root_node());
    reader.unit
}

impl<'a> Reader<'a> {
    fn words(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    fn place(&self, node: Node<'_>) -> Place {
        self.places[node.start_position().row.min(self.places.len() - 1)].clone()
    }

    fn children<'t>(&self, node: Node<'t>) -> Vec<Node<'t>> {
        let mut cursor = node.walk();
        node.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect()
    }

    fn top(&mut self, node: Node<'_>) {
        for child in self.children(node) {
            match child.kind() {
                "function_definition" => self.function(child),
                "declaration" => self.global(child),
                "type_definition" => self.typedef(child),
                "struct_specifier" | "union_specifier" | "enum_specifier" => {
                    self.base_type(child);
                }
                "linkage_specification" | "declaration_list" => self.top(child),
                "ERROR" => {
                    let place = self.place(child);
                    self.unit.errors.push((None, place));
                    self.top(child);
                }
                _ => {}
            }
        }
    }

    fn typedef(&mut self, node: Node<'_>) {
        let Some(base) = node.child_by_field_name("type") else { return };
        let mut ty = self.base_type(base);
        let mut cursor = node.walk();
        for declarator in node.children_by_field_name("declarator", &mut cursor) {
            if let (Type::Struct(tag), "type_identifier") = (&ty, declarator.kind())
                && tag.starts_with("nameless")
            {
                let name = self.words(declarator).to_owned();
                let fields = self.unit.structs.remove(tag).unwrap_or_default();
                self.unit.structs.insert(name.clone(), fields);
                ty = Type::Struct(name);
            }
            if let Some((name, ty, _)) = self.declarator(declarator, ty.clone()) {
                self.unit.typedefs.insert(name, ty);
            }
        }
    }

    fn global(&mut self, node: Node<'_>) {
        for declaration in self.declarations(node) {
            match &declaration.ty {
                Type::Other(what) if what.starts_with("function") => {}
                _ => {
                    let known = self.unit.globals.get(&declaration.name);
                    if known.is_none_or(|known| known.value.is_none()) {
                        self.unit.globals.insert(declaration.name.clone(), declaration);
                    }
                }
            }
        }
    }

    /// What a declaration declares; prototypes are added to the signatures.
    fn declarations(&mut self, node: Node<'_>) -> Vec<Declaration> {
        let Some(base) = node.child_by_field_name("type") else { return Vec::new() };
        let ty = self.base_type(base);
        let is_static = self
            .children(node)
            .iter()
            .any(|child| child.kind() == "storage_class_specifier" && self.words(*child) == "static");
        let mut found = Vec::new();
        let mut cursor = node.walk();
        for declarator in node.children_by_field_name("declarator", &mut cursor) {
            let (inner, value) = match declarator.kind() {
                "init_declarator" => {
                    (declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value"))
                }
                _ => (Some(declarator), None),
            };
            let Some((name, ty, parameters)) = inner.and_then(|inner| self.declarator(inner, ty.clone()))
            else {
                continue;
            };
            if let Some(parameters) = parameters {
                if self.words(node).contains("__error__") {
                    self.refused.insert(name.clone());
                }
                self.unit.signatures.insert(name, parameters.into_iter().map(|(_, ty)| ty).collect());
                continue;
            }
            let value = value.map(|value| self.expr(value));
            found.push(Declaration { name, ty, value, is_static });
        }
        found
    }

    fn function(&mut self, node: Node<'_>) {
        let (Some(base), Some(declarator), Some(body)) = (
            node.child_by_field_name("type"),
            node.child_by_field_name("declarator"),
            node.child_by_field_name("body"),
        ) else {
            return;
        };
        let base = self.base_type(base);
        let Some((name, returns, Some(parameters))) = self.declarator(declarator, base) else { return };
        let types = parameters.iter().map(|(_, ty)| ty.clone()).collect();
        self.unit.signatures.insert(name.clone(), types);
        if let Some(error) = first_error(node) {
            let place = self.place(error);
            self.unit.errors.push((Some(name.clone()), place));
        }
        let end_row = node.end_position().row.min(self.places.len() - 1);
        let function = Function {
            name: name.clone(),
            parameters,
            returns,
            at: self.place(declarator),
            end: self.places[end_row].clone(),
            body: self.stmt(body),
        };
        self.unit.functions.insert(name, function);
    }

    /// Name and type of a declarator, and its parameters if it is a function.
    #[expect(clippy::type_complexity, reason = "the three parts of a declarator")]
    fn declarator(
        &mut self,
        node: Node<'_>,
        ty: Type,
    ) -> Option<(String, Type, Option<Vec<(String, Type)>>)> {
        match node.kind() {
            "identifier" | "field_identifier" | "type_identifier" | "primitive_type" => {
                Some((self.words(node).to_owned(), ty, None))
            }
            "pointer_declarator" => {
                let declarator = node.child_by_field_name("declarator")?;
                self.declarator(declarator, Type::Pointer(Box::new(ty)))
            }
            "array_declarator" => {
                let size = node.child_by_field_name("size").map(|size| self.expr(size));
                let size =
                    size.and_then(|size| self.unit.constant(&size)).and_then(|n| u32::try_from(n).ok());
                let declarator = node.child_by_field_name("declarator")?;
                self.declarator(declarator, Type::Array(Box::new(ty), size))
            }
            "function_declarator" => {
                let declarator = node.child_by_field_name("declarator")?;
                let parameters = self.parameters(node.child_by_field_name("parameters")?);
                if declarator.kind() == "parenthesized_declarator" {
                    // A pointer to a function.
                    let (name, _, _) = self.declarator(declarator, Type::Other("function".to_owned()))?;
                    return Some((name, Type::Other("pointer to a function".to_owned()), None));
                }
                let (name, ty, _) = self.declarator(declarator, ty)?;
                Some((name, ty, Some(parameters)))
            }
            "parenthesized_declarator" | "attributed_declarator" => {
                let inner = *self.children(node).iter().find(|child| {
                    child.kind().ends_with("declarator") || child.kind().ends_with("identifier")
                })?;
                self.declarator(inner, ty)
            }
            "init_declarator" => {
                let inner = node.child_by_field_name("declarator")?;
                self.declarator(inner, ty)
            }
            _ => None,
        }
    }

    fn parameters(&mut self, node: Node<'_>) -> Vec<(String, Type)> {
        let mut found = Vec::new();
        for child in self.children(node) {
            if child.kind() != "parameter_declaration" {
                continue;
            }
            let Some(base) = child.child_by_field_name("type") else { continue };
            let ty = self.base_type(base);
            match child.child_by_field_name("declarator") {
                Some(declarator) if !declarator.kind().starts_with("abstract") => {
                    if let Some((name, ty, _)) = self.declarator(declarator, ty) {
                        let ty = match ty {
                            Type::Array(of, _) => Type::Pointer(of),
                            other => other,
                        };
                        found.push((name, ty));
                    }
                }
                Some(declarator) => {
                    let ty = self.abstract_type(declarator, ty);
                    found.push((String::new(), ty));
                }
                None if ty == Type::Void => {}
                None => found.push((String::new(), ty)),
            }
        }
        found
    }

    fn abstract_type(&self, node: Node<'_>, ty: Type) -> Type {
        let ty = match node.kind() {
            "abstract_pointer_declarator" | "abstract_array_declarator" => Type::Pointer(Box::new(ty)),
            _ => Type::Other(self.words(node).to_owned()),
        };
        match node.child_by_field_name("declarator") {
            Some(inner) => self.abstract_type(inner, ty),
            None => ty,
        }
    }

    fn base_type(&mut self, node: Node<'_>) -> Type {
        match node.kind() {
            "struct_specifier" | "union_specifier" => self.structure(node),
            "enum_specifier" => {
                self.enumeration(node);
                Type::INT
            }
            "type_identifier" if self.words(node) != "_Bool" => Type::Named(self.words(node).to_owned()),
            _ => self.plain_type(self.words(node)),
        }
    }

    fn plain_type(&self, words: &str) -> Type {
        let words: Vec<&str> = words.split_whitespace().collect();
        let has = |word: &str| words.contains(&word);
        let signed = !has("unsigned");
        let integer = |bits: u8| Type::Integer { bits, signed };
        match words.as_slice() {
            ["void"] => Type::Void,
            ["bool" | "_Bool"] => Type::Bool,
            [one] if one.ends_with("_t") => match one.trim_end_matches("_t") {
                "int8" => Type::Integer { bits: 8, signed: true },
                "uint8" => Type::Integer { bits: 8, signed: false },
                "int16" => Type::Integer { bits: 16, signed: true },
                "uint16" => Type::Integer { bits: 16, signed: false },
                "int32" => Type::Integer { bits: 32, signed: true },
                "uint32" => Type::Integer { bits: 32, signed: false },
                "int64" => Type::Integer { bits: 64, signed: true },
                "uint64" => Type::Integer { bits: 64, signed: false },
                "size" | "uintptr" => Type::Integer { bits: self.unit.word_bits, signed: false },
                "ssize" | "intptr" | "ptrdiff" => Type::Integer { bits: self.unit.word_bits, signed: true },
                _ => Type::Named((*one).to_owned()),
            },
            _ if has("float") || has("double") => Type::Other(words.join(" ")),
            _ if has("char") => integer(8),
            _ if has("short") => integer(16),
            _ if words.iter().filter(|word| **word == "long").count() == 2 => integer(64),
            _ if has("long") => integer(self.unit.word_bits),
            _ if has("int") || has("unsigned") || has("signed") => integer(32),
            _ => Type::Named(words.join(" ")),
        }
    }

    fn structure(&mut self, node: Node<'_>) -> Type {
        let name = match node.child_by_field_name("name") {
            Some(name) => self.words(name).to_owned(),
            None => {
                self.nameless += 1;
                format!("nameless{}", self.nameless)
            }
        };
        if let Some(body) = node.child_by_field_name("body") {
            let mut fields = Vec::new();
            for child in self.children(body) {
                if child.kind() != "field_declaration" {
                    continue;
                }
                let Some(base) = child.child_by_field_name("type") else { continue };
                let ty = self.base_type(base);
                let mut cursor = child.walk();
                let mut named = false;
                for declarator in child.children_by_field_name("declarator", &mut cursor) {
                    named = true;
                    if let Some((name, ty, parameters)) = self.declarator(declarator, ty.clone()) {
                        let function = || Type::Other("function".to_owned());
                        fields.push((name, parameters.map_or(ty, |_| function())));
                    }
                }
                // A structure without a name lends its fields.
                if let (false, Type::Struct(tag)) = (named, &ty) {
                    fields.extend(self.unit.structs.get(tag).cloned().unwrap_or_default());
                }
            }
            self.unit.structs.insert(name.clone(), fields);
        }
        Type::Struct(name)
    }

    fn enumeration(&mut self, node: Node<'_>) {
        let Some(body) = node.child_by_field_name("body") else { return };
        let mut next = 0;
        for child in self.children(body) {
            let Some(name) = child.child_by_field_name("name") else { continue };
            if let Some(value) = child.child_by_field_name("value") {
                let value = self.expr(value);
                next = self.unit.constant(&value).unwrap_or(next);
            }
            self.unit.constants.insert(self.words(name).to_owned(), next);
            next += 1;
        }
    }

    fn stmt(&mut self, node: Node<'_>) -> Stmt {
        let at = self.place(node);
        let text = single_blanks(self.words(node));
        let kind = self.stmt_kind(node);
        Stmt { kind, at, text }
    }

    fn inside(&mut self, node: Node<'_>, field: &str) -> Box<Stmt> {
        let at = self.place(node);
        Box::new(match node.child_by_field_name(field) {
            Some(child) => self.stmt(child),
            None => Stmt { kind: StmtKind::Empty, at, text: String::new() },
        })
    }

    fn condition(&mut self, node: Node<'_>) -> Expr {
        match node.child_by_field_name("condition") {
            Some(condition) => self.expr(condition),
            None => Expr { kind: ExprKind::Number(1), at: self.place(node), text: "1".to_owned() },
        }
    }

    fn stmt_kind(&mut self, node: Node<'_>) -> StmtKind {
        let label = |reader: &Self, node: Node<'_>| {
            node.child_by_field_name("label").map_or(String::new(), |label| reader.words(label).to_owned())
        };
        match node.kind() {
            "compound_statement" => StmtKind::Block(self.block(node)),
            "expression_statement" => match self.children(node).first() {
                Some(value) => StmtKind::Expr(self.expr(*value)),
                None => StmtKind::Empty,
            },
            "declaration" => self.local(node),
            "if_statement" => {
                let otherwise = node.child_by_field_name("alternative").and_then(|clause| {
                    let inner = self.children(clause).first().copied();
                    inner.map(|inner| Box::new(self.stmt(inner)))
                });
                let then = self.inside(node, "consequence");
                if otherwise.is_none() && self.is_refused(&then) {
                    return StmtKind::Empty;
                }
                StmtKind::If { condition: self.condition(node), then, otherwise }
            }
            "while_statement" => {
                StmtKind::While { condition: self.condition(node), body: self.inside(node, "body") }
            }
            "do_statement" => {
                StmtKind::DoWhile { body: self.inside(node, "body"), condition: self.condition(node) }
            }
            "for_statement" => self.for_loop(node),
            "switch_statement" => {
                StmtKind::Switch { value: self.condition(node), body: self.inside(node, "body") }
            }
            "case_statement" => {
                let value = node.child_by_field_name("value");
                let skip = usize::from(value.is_some());
                let body = self.children(node).into_iter().skip(skip).collect::<Vec<_>>();
                StmtKind::Case {
                    value: value.map(|value| self.expr(value)),
                    body: body.into_iter().map(|child| self.stmt(child)).collect(),
                }
            }
            "labeled_statement" => {
                let body = self.children(node).into_iter().nth(1);
                let at = self.place(node);
                let body = body.map(|body| self.stmt(body));
                let empty = Stmt { kind: StmtKind::Empty, at, text: String::new() };
                StmtKind::Label(label(self, node), Box::new(body.unwrap_or(empty)))
            }
            "goto_statement" => StmtKind::Goto(label(self, node)),
            "break_statement" => StmtKind::Break,
            "continue_statement" => StmtKind::Continue,
            "return_statement" => {
                let value = self.children(node).first().copied();
                StmtKind::Return(value.map(|value| self.expr(value)))
            }
            "attributed_statement" => match self.children(node).last() {
                Some(inner) if inner.kind().ends_with("statement") => self.stmt_kind(*inner),
                _ => StmtKind::Empty,
            },
            "type_definition" | "struct_specifier" | "enum_specifier" => StmtKind::Empty,
            other => StmtKind::Other(other.replace('_', " ")),
        }
    }

    /// Whether a statement is a call of which the compiler has made sure that it never happens.
    fn is_refused(&self, stmt: &Stmt) -> bool {
        match &stmt.kind {
            StmtKind::Expr(value) => value.called().is_some_and(|(name, _)| self.refused.contains(name)),
            StmtKind::Block(all) => matches!(all.as_slice(), [one] if self.is_refused(one)),
            _ => false,
        }
    }

    /// The value of `({ ...; value; })`, if what comes before it does nothing.
    fn statement_expression(&mut self, node: Node<'_>) -> Option<Expr> {
        let all = self.block(node);
        let (last, before) = all.split_last()?;
        match &last.kind {
            StmtKind::Expr(value) if before.iter().all(does_nothing) => Some(value.clone()),
            _ => None,
        }
    }

    fn block(&mut self, node: Node<'_>) -> Vec<Stmt> {
        self.children(node).into_iter().map(|child| self.stmt(child)).collect()
    }

    fn local(&mut self, node: Node<'_>) -> StmtKind {
        let at = self.place(node);
        let text = single_blanks(self.words(node));
        let mut all: Vec<StmtKind> = self.declarations(node).into_iter().map(StmtKind::Declare).collect();
        match all.len() {
            0 => StmtKind::Empty,
            1 => all.remove(0),
            _ => {
                let stmt = |kind| Stmt { kind, at: at.clone(), text: text.clone() };
                StmtKind::Group(all.into_iter().map(stmt).collect())
            }
        }
    }

    fn for_loop(&mut self, node: Node<'_>) -> StmtKind {
        let begin = node.child_by_field_name("initializer").map(|begin| match begin.kind() {
            "declaration" => self.stmt(begin),
            _ => {
                let value = self.expr(begin);
                let (at, text) = (value.at.clone(), value.text.clone());
                Stmt { kind: StmtKind::Expr(value), at, text }
            }
        });
        StmtKind::For {
            begin: begin.map(Box::new),
            condition: node.child_by_field_name("condition").map(|condition| self.expr(condition)),
            update: node.child_by_field_name("update").map(|update| self.expr(update)),
            body: self.inside(node, "body"),
        }
    }

    fn expr(&mut self, node: Node<'_>) -> Expr {
        if matches!(node.kind(), "parenthesized_expression" | "extension_expression") {
            let inner = self.children(node).first().copied();
            match inner {
                Some(inner) if inner.kind() != "compound_statement" => return self.expr(inner),
                Some(inner) => {
                    if let Some(value) = self.statement_expression(inner) {
                        return value;
                    }
                }
                None => {}
            }
        }
        let at = self.place(node);
        let text = single_blanks(self.words(node));
        let kind = self.expr_kind(node).unwrap_or_else(|| ExprKind::Other(node.kind().replace('_', " ")));
        pointed(&kind).cloned().unwrap_or(Expr { kind, at, text })
    }

    fn field(&mut self, node: Node<'_>, name: &str) -> Option<Box<Expr>> {
        node.child_by_field_name(name).map(|child| Box::new(self.expr(child)))
    }

    fn expr_kind(&mut self, node: Node<'_>) -> Option<ExprKind> {
        let operator = node.child_by_field_name("operator").map(|operator| self.words(operator));
        let operator = || operator;
        Some(match node.kind() {
            "identifier" => ExprKind::Name(self.words(node).to_owned()),
            "number_literal" | "char_literal" => ExprKind::Number(number(self.words(node))?),
            "true" => ExprKind::Number(1),
            "false" | "null" => ExprKind::Number(0),
            "string_literal" | "concatenated_string" => ExprKind::Text,
            "unary_expression" => {
                let operator = operator()?.to_owned();
                ExprKind::Unary(operator, self.field(node, "argument")?)
            }
            "pointer_expression" => match operator()? {
                "&" => ExprKind::AddressOf(self.field(node, "argument")?),
                _ => ExprKind::Deref(self.field(node, "argument")?),
            },
            "binary_expression" => {
                let operator = operator()?.to_owned();
                ExprKind::Binary(operator, self.field(node, "left")?, self.field(node, "right")?)
            }
            "assignment_expression" => {
                let operator = operator()?.trim_end_matches('=').to_owned();
                ExprKind::Assign(operator, self.field(node, "left")?, self.field(node, "right")?)
            }
            "update_expression" => {
                let sign = operator()?.chars().next()?;
                let first = node.child(0)?;
                let after = self.words(first) == operator()?;
                ExprKind::Update { operator: sign, after, target: self.field(node, "argument")? }
            }
            "call_expression" => {
                let function = self.field(node, "function")?;
                let arguments = self.children(node.child_by_field_name("arguments")?);
                ExprKind::Call(function, arguments.into_iter().map(|child| self.expr(child)).collect())
            }
            "field_expression" => ExprKind::Field {
                base: self.field(node, "argument")?,
                name: self.words(node.child_by_field_name("field")?).to_owned(),
                arrow: operator()? == "->",
            },
            "subscript_expression" => {
                ExprKind::Index(self.field(node, "argument")?, self.field(node, "index")?)
            }
            "cast_expression" => {
                let descriptor = node.child_by_field_name("type")?;
                let base = self.base_type(descriptor.child_by_field_name("type")?);
                let ty = match descriptor.child_by_field_name("declarator") {
                    Some(declarator) => self.abstract_type(declarator, base),
                    None => base,
                };
                ExprKind::Cast(ty, self.field(node, "value")?)
            }
            "conditional_expression" => ExprKind::Conditional(
                self.field(node, "condition")?,
                self.field(node, "consequence")?,
                self.field(node, "alternative")?,
            ),
            "comma_expression" => ExprKind::Comma(self.field(node, "left")?, self.field(node, "right")?),
            _ => return None,
        })
    }
}

/// `*&x` is x, also where the pointer is cast to the type of an expression, which is how a kernel says that x
/// is read or written once.
fn pointed(kind: &ExprKind) -> Option<&Expr> {
    let ExprKind::Deref(pointer) = kind else { return None };
    let is_typeof = |ty: &Type| matches!(ty, Type::Pointer(to) if **to == Type::Named(TYPEOF.to_owned()));
    let pointer = match &pointer.kind {
        ExprKind::Cast(ty, inner) if is_typeof(ty) => inner,
        _ => pointer,
    };
    match &pointer.kind {
        ExprKind::AddressOf(inner) => Some(inner),
        _ => None,
    }
}

fn does_nothing(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Empty => true,
        StmtKind::Block(all) => all.iter().all(does_nothing),
        StmtKind::DoWhile { body, condition } => {
            matches!(condition.kind, ExprKind::Number(0)) && does_nothing(body)
        }
        _ => false,
    }
}

fn first_error(node: Node<'_>) -> Option<Node<'_>> {
    if !node.has_error() {
        return None;
    }
    if node.is_error() || node.is_missing() {
        return Some(node);
    }
    let mut cursor = node.walk();
    let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
    children.into_iter().find_map(first_error)
}

/// An integer or a character as C writes them.
fn number(text: &str) -> Option<i64> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        let mut characters = inner.chars();
        return Some(match (characters.next()?, characters.next()) {
            ('\\', Some('n')) => 10,
            ('\\', Some('t')) => 9,
            ('\\', Some('r')) => 13,
            ('\\', Some('b')) => 8,
            ('\\', Some(digit @ '0'..='7')) => {
                let digits: String = std::iter::once(digit).chain(characters).collect();
                i64::from_str_radix(&digits, 8).ok()?
            }
            ('\\', Some('x')) => i64::from_str_radix(characters.as_str(), 16).ok()?,
            ('\\', Some(other)) => i64::from(u32::from(other)),
            (one, None) => i64::from(u32::from(one)),
            _ => return None,
        });
    }
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let lower = digits.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(u64::cast_signed);
    }
    if lower.len() > 1 && lower.starts_with('0') {
        return i64::from_str_radix(&lower, 8).ok();
    }
    lower.parse().ok()
}

/// A name for files in messages: the same shared value for equal names.
#[must_use]
pub fn place(file: &str, line: u32) -> Place {
    Place { file: Arc::from(file), line }
}

//! What looks like a call in an expression: the built-in functions, and texts.

use super::compile::{Compiler, INT, Operand, Shape, Ty, fold};
use super::format::{Arguments, TextCode};
use super::syntax::{Argument, Binary, Kind, Node, TypeName};
use super::{Code, Problem, Span};
use crate::elf::nearest::{nearest, suggestion};
use crate::elf::types::Type;
use std::sync::Arc;

impl Compiler<'_, '_> {
    pub(super) fn call(
        &mut self,
        function: &str,
        arguments: &[Argument],
        open: bool,
        span: &Span,
    ) -> Result<Operand, Problem> {
        const KNOWN: [&str; 8] =
            ["arg", "defined", "static", "offset_of", "container_of", "string", "format", "vformat"];
        let wrong = |usage: &str| Problem::new(span.clone(), format!("it is written {usage}"));
        if open && function != "format" {
            return Err(Problem::new(span.clone(), "'...' is only for format(fmt, ...)"));
        }
        match (function, arguments) {
            ("arg", [Argument::Value(Node { kind: Kind::Number { value, .. }, .. })]) => {
                self.argument(*value, span)
            }
            ("arg", _) => Err(wrong("arg(NUMBER)")),
            ("defined", [Argument::Value(Node { kind: Kind::Name(name), span })]) => {
                // Not the name of a structure, which without `struct` means nothing: where one but no
                // variable is called `tss`, what stands behind `defined(tss)` could not be read.
                let image = self.scope.image;
                let known = image.types().named(name).is_some()
                    || !image.variables(name).is_empty()
                    || self.name(name, span).is_ok();
                Ok(Operand::Value { code: Code::Constant(u64::from(known)), ty: INT })
            }
            ("defined", [Argument::Type(ty)]) => {
                let known = self.type_name(ty).is_ok();
                Ok(Operand::Value { code: Code::Constant(u64::from(known)), ty: INT })
            }
            ("defined", _) => Err(wrong("defined(NAME)")),
            (
                "static",
                [
                    Argument::Value(Node { kind: Kind::Text(home), .. }),
                    Argument::Value(Node { kind: Kind::Name(name), span }),
                ],
            ) => self.static_of(home, name, span),
            ("static", _) => Err(wrong("static(\"FILE.c\", NAME) or static(\"FUNCTION\", NAME)")),
            ("offset_of", [Argument::Type(ty), Argument::Value(Node { kind: Kind::Name(name), span })]) => {
                let offset = self.offset_of(ty, name, span)?;
                let ty = Ty::Integer { size: self.word(), signed: false };
                Ok(Operand::Value { code: Code::Constant(offset), ty })
            }
            ("offset_of", _) => Err(wrong("offset_of(struct NAME, MEMBER)")),
            (
                "container_of",
                [
                    Argument::Value(pointer),
                    Argument::Type(ty),
                    Argument::Value(Node { kind: Kind::Name(name), span }),
                ],
            ) => {
                let (code, _) = self.number(pointer)?;
                let offset = self.offset_of(ty, name, span)?;
                let of = Box::new((code, Code::Constant(offset)));
                let code = Code::Binary { operation: Binary::Subtract, of, size: self.word(), signed: false };
                let to = self.type_name(ty)?;
                Ok(Operand::Value { code: fold(code), ty: Ty::Pointer(Arc::new(to)) })
            }
            ("container_of", _) => Err(wrong("container_of(POINTER, struct NAME, MEMBER)")),
            ("string", [Argument::Value(pointer)]) => {
                let (code, _) = self.number(pointer)?;
                Ok(Operand::Text(TextCode::Text(code)))
            }
            ("string", _) => Err(wrong("string(POINTER)")),
            ("format", [Argument::Value(fmt), values @ ..]) if values.is_empty() || !open => {
                let pattern = self.text_of(fmt)?;
                let arguments = match open {
                    true => self.further_arguments(span)?,
                    false => self.values(values, span)?,
                };
                Ok(Operand::Text(TextCode::Format { pattern: Box::new(pattern), arguments }))
            }
            ("format", _) => Err(wrong("format(FORMAT, ...) or format(FORMAT, VALUE, VALUE)")),
            ("vformat", [Argument::Value(fmt), Argument::Value(list)]) => {
                let pattern = self.text_of(fmt)?;
                let (list, _) = self.number(list)?;
                let arguments = Arguments::List(list);
                Ok(Operand::Text(TextCode::Format { pattern: Box::new(pattern), arguments }))
            }
            ("vformat", _) => Err(wrong("vformat(FORMAT, VA_LIST)")),
            _ => {
                let near = suggestion(&nearest(function, KNOWN.iter().copied()));
                Err(Problem::new(
                    span.clone(),
                    format!("functions of the kernel cannot be called; known are {}{near}", KNOWN.join(", ")),
                ))
            }
        }
    }

    /// The arguments of the hooked function that follow those its prototype names.
    fn further_arguments(&self, span: &Span) -> Result<Arguments, Problem> {
        if self.homes.is_empty() || self.scope.returns {
            return Err(Problem::new(
                span.clone(),
                "'...' stands for the arguments after the format, so that has to be an argument of a function being \
                 entered",
            ));
        }
        Ok(Arguments::Rest { first: self.homes.len() as u8 })
    }

    fn values(&mut self, values: &[Argument], span: &Span) -> Result<Arguments, Problem> {
        let mut list = Vec::new();
        for value in values {
            let Argument::Value(value) = value else {
                return Err(Problem::new(span.clone(), "it is written format(FORMAT, VALUE …)"));
            };
            list.push(self.text_of(value)?);
        }
        Ok(Arguments::Values(list))
    }

    fn offset_of(&self, ty: &TypeName, name: &str, span: &Span) -> Result<u64, Problem> {
        let known = self.type_name(ty)?;
        let Shape::Struct(id) = self.shape(&known) else {
            return Err(Problem::new(ty.span.clone(), format!("{} has no members", self.describe(&known))));
        };
        let member = self.types().member(id, name).ok_or_else(|| {
            let names = self.types().member_names(id);
            let near = suggestion(&nearest(name, names.iter().map(|name| &**name)));
            Problem::new(span.clone(), format!("{} has no member '{name}'{near}", self.types().display(id)))
        })?;
        Ok(member.offset)
    }

    fn text_of(&mut self, node: &Node) -> Result<TextCode, Problem> {
        let operand = self.operand(node)?;
        self.text(node, &operand, &node.span)
    }

    /// How the value is shown to a person.
    pub(super) fn text(&mut self, node: &Node, operand: &Operand, span: &Span) -> Result<TextCode, Problem> {
        if let Kind::Binary { operation, left, right } = &node.kind
            && (operation.compares() || matches!(operation, Binary::And | Binary::Or))
            && !matches!(operand, Operand::Value { code: Code::Constant(_), .. })
        {
            let sides = Box::new((self.text_of(left)?, self.text_of(right)?));
            return Ok(TextCode::Comparison { operation: *operation, sides });
        }
        let (code, ty) = match operand {
            Operand::Text(text) => return Ok(text.clone()),
            Operand::Value { code, ty } => (code.clone(), ty.clone()),
            Operand::Place { at, offset, ty, bits } => {
                if let Shape::Array(of) = self.shape(ty)
                    && let Shape::Integer { size: 1, .. } = self.shape(&of)
                {
                    let limit = self.size(ty).unwrap_or(0).min(super::format::TEXT_MAX as u64);
                    return Ok(TextCode::Bytes {
                        at: self.add_offset(at.clone(), *offset),
                        limit: limit as usize,
                    });
                }
                if let Shape::Struct(_) = self.shape(ty) {
                    return Ok(TextCode::Literal(self.describe(ty)));
                }
                let place = Operand::Place { at: at.clone(), offset: *offset, ty: ty.clone(), bits: *bits };
                self.value(place, span)?
            }
        };
        if let Ty::Known(id) = &ty
            && let Type::Enum { enumerators, .. } = self.types().get(self.types().strip(*id))
        {
            return Ok(TextCode::Enumerator { code, names: enumerators.clone().into() });
        }
        Ok(match self.shape(&ty) {
            Shape::Integer { signed: true, .. } => TextCode::Signed(code),
            Shape::Integer { .. } => TextCode::Unsigned(code),
            Shape::Pointer(to) => match self.shape(&to) {
                Shape::Integer { size: 1, .. } => TextCode::Text(code),
                _ => TextCode::Pointer(code),
            },
            _ => TextCode::Pointer(code),
        })
    }
}

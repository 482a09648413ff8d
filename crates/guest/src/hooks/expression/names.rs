//! What a name means: bound by the place, an argument, a definition, a local, a variable, an enumerator, a
//! register.

use super::compile::{Compiler, INT, LocalHome, Operand, Shape, Ty};
use super::syntax::Binary;
use super::{ArgumentHome, Code, Problem, Span, Special};
use crate::elf::dwarf::{Local, Variable};
use crate::elf::location::{self, Home, Surroundings};
use crate::elf::nearest::{nearest, suggestion};
use crate::elf::types::TypeId;
use crate::state::{Architecture, Pieces, Registers};
use std::sync::Arc;

/// How a function gets one of its arguments.
#[derive(Clone, Copy)]
enum Passed {
    At(ArgumentHome),
    /// The argument is not passed at all: the compiler made a copy of the function for this value.
    Always(u64),
}

/// The most arguments of a function: enough for any that a hook is put on.
const ARGUMENTS_MAX: u64 = 32;

fn place(variable: &Variable) -> Operand {
    let at = Code::Constant(variable.address);
    Operand::Place { at, offset: 0, ty: Ty::Known(variable.ty), bits: None }
}

impl Compiler<'_, '_> {
    pub(super) fn name(&mut self, name: &str, span: &Span) -> Result<Operand, Problem> {
        if let Some(index) = self.scope.bindings.iter().position(|binding| binding.name == name) {
            let ty = self.scope.bindings[index].ty.clone();
            return Ok(Operand::Value { code: Code::Bound(index as u8), ty });
        }
        if let Some(index) = name.strip_prefix("arg").and_then(|digits| digits.parse::<u64>().ok()) {
            return self.argument(index, span);
        }
        if name == "ret" && self.scope.returns {
            let subprogram = self.scope.function.and_then(|function| self.scope.image.subprogram(function));
            let ty = match subprogram.and_then(|subprogram| subprogram.returns) {
                Some(ty) => Ty::Known(ty),
                None => Ty::Integer { size: self.word(), signed: true },
            };
            let code = match self.shape(&ty) {
                Shape::Integer { size, signed } => {
                    Code::Narrow { of: Box::new(Code::Returned), size, signed }
                }
                _ => Code::Narrow { of: Box::new(Code::Returned), size: self.word(), signed: false },
            };
            return Ok(Operand::Value { code, ty });
        }
        if let Some(definition) = self.scope.definitions.get(name) {
            return self.definition(name, definition, span);
        }
        if let Some(operand) = self.own_name(name, span)? {
            return Ok(operand);
        }
        let image = self.scope.image;
        if let Some(variable) = self.variable(name, span)? {
            return Ok(place(variable));
        }
        if let Some(value) = image.enumerator(name) {
            return Ok(Operand::Value { code: Code::Constant(value as u64), ty: INT });
        }
        match name {
            "true" => return Ok(Operand::Value { code: Code::Constant(1), ty: INT }),
            "false" => return Ok(Operand::Value { code: Code::Constant(0), ty: INT }),
            "NULL" => {
                let ty = Ty::Pointer(Arc::new(Ty::Known(TypeId::VOID)));
                return Ok(Operand::Value { code: Code::Constant(0), ty });
            }
            _ => {}
        }
        let function = image.function(name).first().map(|id| image.get(*id).start);
        if let Some(addr) = function.or_else(|| image.symbol(name).map(|symbol| symbol.addr)) {
            // A label or a variable without a type: the name is an address that has to be cast before use.
            let ty = Ty::Pointer(Arc::new(Ty::Known(TypeId::VOID)));
            return Ok(Operand::Value { code: Code::Constant(addr.0), ty });
        }
        if name == "ret" {
            return Err(Problem::new(
                span.clone(),
                "'ret' is only known where a function returns (on = \"leave …\")",
            ));
        }
        let mut near = self
            .parameters()
            .map_or_else(Vec::new, |locals| nearest(name, locals.iter().map(|local| &*local.name)));
        near.extend(nearest(name, self.scope.definitions.keys().map(String::as_str)));
        near.extend(image.nearest_values(name));
        near.truncate(3);
        let hint = if image.has_debug_information()
            && name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
            && near.is_empty()
        {
            "; if it is a #define, give its value under [define]".to_string()
        } else {
            suggestion(&near)
        };
        Err(Problem::new(
            span.clone(),
            format!("the kernel has no variable, enumerator or function '{name}'{hint}"),
        ))
    }

    /// The variable of a name as the hooked function would see it: its own static, one of its file, a global
    /// one.
    fn variable(&self, name: &str, span: &Span) -> Result<Option<&Variable>, Problem> {
        let image = self.scope.image;
        let all = image.variables(name);
        let function = self.scope.function;
        let file = function.and_then(|function| image.subprogram(function)?.file);
        let of_function = |variable: &&&Variable| {
            function.is_some_and(|function| variable.function.as_deref() == Some(&*function.name))
        };
        let of_file =
            |variable: &&&Variable| variable.function.is_none() && file.is_some() && variable.file == file;
        if let Some(own) = all.iter().find(of_function).or_else(|| all.iter().find(of_file)) {
            return Ok(Some(own));
        }
        let outside: Vec<&Variable> =
            all.iter().filter(|variable| variable.function.is_none()).copied().collect();
        let seen = if outside.is_empty() { all } else { outside };
        let [first, _, ..] = seen.as_slice() else { return Ok(seen.first().copied()) };
        let mut homes: Vec<String> = seen.iter().filter_map(|variable| image.home_of(variable)).collect();
        homes.dedup();
        let choice = homes.first().map_or("FILE", String::as_str);
        let message = format!(
            "there are {} variables '{}', in {}: say which, as static(\"{choice}\", {name})",
            seen.len(),
            first.name,
            homes.join(" and in ")
        );
        Err(Problem::new(span.clone(), message))
    }

    /// `static("file.c", name)`, or with the function that it is in.
    pub(super) fn static_of(&self, home: &str, name: &str, span: &Span) -> Result<Operand, Problem> {
        let image = self.scope.image;
        let all = image.variables(name);
        let lives = |variable: &&&Variable| {
            variable.function.as_deref() == Some(home)
                || variable.function.is_none() && image.is_declared_in(variable, home)
        };
        if let Some(variable) = all.iter().find(lives) {
            return Ok(place(variable));
        }
        let homes: Vec<String> = all.iter().filter_map(|variable| image.home_of(variable)).collect();
        let hint = match homes.as_slice() {
            [] => suggestion(&image.nearest_values(name)),
            homes => format!("; there is one in {}", homes.join(" and in ")),
        };
        Err(Problem::new(span.clone(), format!("{home} has no variable '{name}'{hint}")))
    }

    pub(super) fn parameters(&self) -> Option<&[Local]> {
        let function = self.scope.function?;
        Some(&self.scope.image.subprogram(function)?.parameters)
    }

    /// A parameter or local of the hooked function.
    fn own_name(&mut self, name: &str, span: &Span) -> Result<Option<Operand>, Problem> {
        if let Some(at) = self.scope.at {
            let Some(function) = self.scope.image.function_at(at).map(|id| self.scope.image.get(id)) else {
                return Ok(None);
            };
            let Some(subprogram) = self.scope.image.subprogram(function) else { return Ok(None) };
            let known = subprogram.locals.iter().rev().chain(&subprogram.parameters);
            let mut visible = known.filter(|local| {
                &*local.name == name && local.scope.iter().any(|range| range.contains(&at.0))
            });
            let Some(local) = visible.next() else { return Ok(None) };
            let Some(expression) = local.location.at(at.0) else {
                return Err(Problem::new(
                    span.clone(),
                    format!("'{name}' has no value at {at}: the compiler removed it there"),
                ));
            };
            let home = LocalHome {
                image: self.scope.image.clone(),
                expression: expression.into(),
                frame_base: subprogram.frame_base.at(at.0).map(Into::into),
            };
            let ty = Ty::Known(local.ty);
            let in_memory = home.in_memory();
            let code = Code::Local(Arc::new(home));
            return Ok(Some(if in_memory {
                Operand::Place { at: code, offset: 0, ty, bits: None }
            } else {
                let (size, signed) = match self.shape(&ty) {
                    Shape::Integer { size, signed } => (size, signed),
                    _ => (self.word(), false),
                };
                Operand::Value { code: Code::Narrow { of: Box::new(code), size, signed }, ty }
            }));
        }
        let index =
            self.parameters().and_then(|parameters| parameters.iter().position(|local| &*local.name == name));
        match index {
            Some(index) => self.argument(index as u64, span).map(Some),
            None => Ok(None),
        }
    }

    /// Argument `index` in declaration order. A 64-bit parameter takes two slots of a 32-bit stack.
    pub(super) fn argument(&mut self, index: u64, span: &Span) -> Result<Operand, Problem> {
        let Some(function) = self.scope.function else {
            return Err(Problem::new(
                span.clone(),
                "arguments are only known where a function is entered or left",
            ));
        };
        let parameters = self.parameters();
        if let Some(parameters) = parameters
            && index >= parameters.len() as u64
            && !self.scope.image.subprogram(function).is_some_and(|subprogram| subprogram.variadic)
        {
            let count = parameters.len();
            return Err(Problem::new(
                span.clone(),
                format!(
                    "'{}' has only {count} parameter{}",
                    function.name,
                    if count == 1 { "" } else { "s" }
                ),
            ));
        }
        if index >= ARGUMENTS_MAX {
            return Err(Problem::new(span.clone(), format!("only {ARGUMENTS_MAX} arguments can be used")));
        }
        let word = self.word();
        let slots = |size: u64| size.div_ceil(u64::from(word)).max(1);
        let before = parameters.unwrap_or(&[]).iter().take(index as usize);
        let named = before.clone().count() as u64;
        let slot = before.map(|local| slots(self.types().size(local.ty).unwrap_or(1))).sum::<u64>()
            + (index - named);
        let ty = match parameters.and_then(|parameters| parameters.get(index as usize)) {
            Some(local) => Ty::Known(local.ty),
            // Of assembly nothing is known: most often it is an address, which must be what it is elsewhere.
            None => Ty::Integer { size: word, signed: false },
        };
        let home = match self.home(index as usize, slot, span)? {
            Passed::At(home) => home,
            Passed::Always(value) => return Ok(Operand::Value { code: Code::Constant(value), ty }),
        };
        let wide = matches!(self.shape(&ty), Shape::Integer { size, .. } if size > word);
        for slot in self.homes.len() as u64..=slot + u64::from(wide) {
            self.homes.push(ArgumentHome::Convention(slot as u8));
        }
        self.homes[slot as usize] = home;
        let low = Code::Argument(slot as u8);
        let code = match self.shape(&ty) {
            Shape::Integer { .. } if wide => {
                if home != ArgumentHome::Convention(slot as u8) {
                    return Err(Problem::new(span.clone(), "a 64-bit argument in registers cannot be used"));
                }
                let high = Code::Binary {
                    operation: Binary::ShiftLeft,
                    of: Box::new((Code::Argument(slot as u8 + 1), Code::Constant(32))),
                    size: 8,
                    signed: false,
                };
                Code::Binary { operation: Binary::BitOr, of: Box::new((high, low)), size: 8, signed: false }
            }
            Shape::Integer { size, signed } => Code::Narrow { of: Box::new(low), size, signed },
            Shape::Struct(_) => {
                return Err(Problem::new(span.clone(), "a struct passed by value cannot be used"));
            }
            _ => low,
        };
        Ok(Operand::Value { code, ty })
    }

    /// Where parameter `index` is at the entry, by its debugging information.
    fn home(&self, index: usize, slot: u64, span: &Span) -> Result<Passed, Problem> {
        let convention = Passed::At(ArgumentHome::Convention(slot as u8));
        let architecture = self.scope.image.architecture;
        let (Some(function), Some(local)) =
            (self.scope.function, self.parameters().and_then(|parameters| parameters.get(index)))
        else {
            return Ok(convention);
        };
        let Some(expression) = local.location.at(function.start.0) else {
            let whole =
                self.parameters().is_some_and(|all| all.iter().all(|local| local.location.0.is_empty()));
            if whole && architecture != Architecture::X86 {
                return Ok(convention);
            }
            return Err(Problem::new(
                span.clone(),
                format!(
                    "the compiler removed parameter '{}' of '{}'; use another function or a variable",
                    local.name, function.name
                ),
            ));
        };
        match gimli::DwOp(expression[0]) {
            register if (gimli::DW_OP_reg0.0..=gimli::DW_OP_reg31.0).contains(&register.0) => {
                let number = u16::from(register.0 - gimli::DW_OP_reg0.0);
                let number = location::register_number(architecture, number);
                Ok(number.map_or(convention, |number| Passed::At(ArgumentHome::Register(number as u8))))
            }
            gimli::DW_OP_fbreg if architecture == Architecture::X86 => {
                let mut rest = gimli::EndianSlice::new(&expression[1..], gimli::LittleEndian);
                let offset = gimli::Reader::read_sleb128(&mut rest).unwrap_or(-1);
                let subprogram = self.scope.image.subprogram(function);
                let base = subprogram.and_then(|subprogram| subprogram.frame_base.at(function.start.0));
                let from_cfa = base == Some(&[gimli::DW_OP_call_frame_cfa.0]);
                match u8::try_from(offset / 4) {
                    Ok(slot) if from_cfa && offset >= 0 => Ok(Passed::At(ArgumentHome::Convention(slot))),
                    _ => Ok(convention),
                }
            }
            _ => {
                let nothing = (Registers::default(), Pieces::default());
                let around = Surroundings::default();
                match location::evaluate(expression, architecture, &nothing.0, &nothing.1, around) {
                    Some(Home::Value(value)) => Ok(Passed::Always(value)),
                    _ => Ok(convention),
                }
            }
        }
    }

    fn definition(&mut self, name: &str, definition: &str, span: &Span) -> Result<Operand, Problem> {
        if self.expanding.iter().any(|open| open == name) {
            return Err(Problem::new(span.clone(), format!("the definition of '{name}' uses itself")));
        }
        self.expanding.push(name.to_string());
        // Spans of a definition mean nothing outside of it: its problems are reported where it is used.
        let within = |problem: Problem| match problem.message.starts_with("in the definition of") {
            true => Problem::new(span.clone(), problem.message),
            false => Problem::new(span.clone(), format!("in the definition of '{name}': {problem}")),
        };
        let node = self.parse(definition).map_err(within)?;
        let operand = self.operand(&node).map_err(within)?;
        self.expanding.pop();
        Ok(operand)
    }

    pub(super) fn register(&self, name: &str, span: &Span) -> Result<Operand, Problem> {
        const SPECIAL: [(&str, Special); 9] = [
            ("pc", Special::Pc),
            ("eip", Special::Pc),
            ("rip", Special::Pc),
            ("eflags", Special::Flags),
            ("interrupts", Special::Interrupts),
            ("ring", Special::Ring),
            ("cr2", Special::Cr2),
            ("cr3", Special::Cr3),
            ("cpu", Special::Cpu),
        ];
        let word = self.word();
        let ty = Ty::Integer { size: word, signed: false };
        if let Some((_, special)) = SPECIAL.iter().find(|(own, _)| *own == name) {
            return Ok(Operand::Value { code: Code::Special(*special), ty });
        }
        const X86: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
        let number = match self.scope.image.architecture {
            Architecture::Riscv64 => name
                .strip_prefix('x')
                .and_then(|digits| digits.parse::<u8>().ok())
                .filter(|number| *number < 32),
            _ => {
                let plain = name.strip_prefix(['e', 'r']).unwrap_or(name);
                let legacy = X86.iter().position(|own| *own == plain).map(|number| number as u8);
                let numbered =
                    plain.parse::<u8>().ok().filter(|number| (8..16).contains(number) && word == 8);
                legacy.or(numbered)
            }
        };
        let Some(number) = number else {
            let known = SPECIAL
                .iter()
                .map(|(own, _)| *own)
                .chain(["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"]);
            let near = suggestion(&nearest(name, known));
            return Err(Problem::new(span.clone(), format!("there is no register '${name}'{near}")));
        };
        Ok(Operand::Value { code: Code::Register { number, size: word }, ty })
    }
}

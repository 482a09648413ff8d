//! From the tree to resolved code: names become addresses, members become offsets, types disappear.

use super::format::{Arguments, TextCode};
use super::syntax::{self, Argument, Base, Binary, IntegerSize, Kind, Node, TypeName, Unary};
use super::{ArgumentHome, Code, Compiled, Expression, Machine, Problem, Span, Special, narrow};
use crate::dwarf::Local;
use crate::image::{Function, Image};
use crate::location::{self, Home, Surroundings};
use crate::nearest::{nearest, suggestion};
use crate::state::{Architecture, Memory, Registers};
use crate::types::{Type, TypeId, Types};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::VirtAddr;

/// The type of a value while compiling: one of the program's, or made up on the way.
#[derive(Clone, PartialEq, Debug)]
pub enum Ty {
    Known(TypeId),
    Integer { size: u8, signed: bool },
    Pointer(Arc<Ty>),
    Text,
}

/// A name that the place of an expression gives a value to, such as `t` for a thread.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    pub name: &'static str,
    pub ty: Ty,
}

/// The names an expression may use beside the program's own.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub image: &'a Arc<Image>,
    /// The function whose arguments `arg0 …` are; its parameters can be named too.
    pub function: Option<&'a Function>,
    /// Whether `ret` has a meaning.
    pub returns: bool,
    /// Where the expression is evaluated, if always at one place: locals are then known.
    pub at: Option<VirtAddr>,
    pub bindings: &'a [Binding],
    /// Names for other expressions.
    pub definitions: &'a BTreeMap<String, String>,
}

/// A local variable at one place of the code.
#[derive(Clone, Debug)]
pub(crate) struct LocalHome {
    image: Arc<Image>,
    expression: Box<[u8]>,
    frame_base: Option<Box<[u8]>>,
}

impl LocalHome {
    /// Its address; or its value, when it lives in a register.
    pub(crate) fn find(&self, registers: &Registers, memory: &(impl Memory + ?Sized)) -> Option<u64> {
        let architecture = self.image.architecture;
        let cfa = crate::stack::frame_address(&self.image, registers, memory);
        let around = Surroundings { cfa, frame_base: self.frame_base.as_deref(), initial: None };
        Some(match location::evaluate(&self.expression, architecture, registers, memory, around)? {
            Home::Memory(addr) => addr.0,
            Home::Register(number) => registers.general[number],
            Home::Value(value) => value,
        })
    }

    fn in_memory(&self) -> bool {
        match self.expression.first().map(|byte| gimli::DwOp(*byte)) {
            Some(operation) => {
                let register = (gimli::DW_OP_reg0.0..=gimli::DW_OP_reg31.0).contains(&operation.0);
                !register && self.expression.last() != Some(&gimli::DW_OP_stack_value.0)
            }
            None => false,
        }
    }
}

/// What a subexpression is: something with an address, or just a value.
enum Operand {
    Place { at: Code, offset: u64, ty: Ty, bits: Option<(u8, u8)> },
    Value { code: Code, ty: Ty },
    Text(TextCode),
}

/// A type with names and qualifiers taken off.
enum Shape {
    Integer { size: u8, signed: bool },
    Pointer(Ty),
    Array(Ty),
    Struct(TypeId),
    Function,
    Void,
    Float,
    Text,
}

const INT: Ty = Ty::Integer { size: 4, signed: true };
/// Enough for any function that a hook is put on.
const ARGUMENTS_MAX: u64 = 32;

pub(super) fn compile(source: &str, scope: &Scope<'_>) -> Result<Expression, Problem> {
    let mut compiler = Compiler { scope, homes: Vec::new(), expanding: Vec::new() };
    let node = compiler.parse(source)?;
    let operand = compiler.operand(&node)?;
    let text = compiler.text(&node, &operand, &node.span)?;
    let (code, ty) = match operand {
        Operand::Text(_) => (Code::Constant(1), Ty::Text),
        other => compiler.value(other, &node.span)?,
    };
    let points_to = match compiler.shape(&ty) {
        Shape::Pointer(Ty::Known(to)) => Some(compiler.types().strip(to)),
        Shape::Struct(id) => Some(id),
        _ => None,
    };
    Ok(Expression(Arc::new(Compiled {
        source: source.to_string(),
        architecture: scope.image.architecture,
        code,
        ty,
        points_to,
        text,
        homes: compiler.homes,
    })))
}

struct Compiler<'a, 's> {
    scope: &'a Scope<'s>,
    homes: Vec<ArgumentHome>,
    /// Definitions being expanded, to notice circles.
    expanding: Vec<String>,
}

fn constant(code: &Code) -> Option<u64> {
    match code {
        Code::Constant(value) => Some(*value),
        _ => None,
    }
}

/// Computes now what depends on nothing.
fn fold(code: Code) -> Code {
    let constants = match &code {
        Code::Binary { of, .. } | Code::And(of) | Code::Or(of) => {
            constant(&of.0).is_some() && constant(&of.1).is_some()
        }
        Code::Negate { of, .. } | Code::Complement { of, .. } | Code::Not(of) | Code::Narrow { of, .. } => {
            constant(of).is_some()
        }
        _ => false,
    };
    if !constants {
        return code;
    }
    let registers = Registers::default();
    let inputs = super::Inputs::new(&registers);
    let memory = crate::state::Pieces::default();
    let machine = Machine { architecture: Architecture::X86, memory: &memory, inputs: &inputs, homes: &[] };
    match machine.run(&code) {
        Ok(value) => Code::Constant(value),
        Err(_) => code,
    }
}

impl Compiler<'_, '_> {
    fn types(&self) -> &Types {
        self.scope.image.types()
    }

    fn word(&self) -> u8 {
        self.scope.image.architecture.word() as u8
    }

    fn parse(&self, source: &str) -> Result<Node, Problem> {
        let is_type = |name: &str| {
            let shadowed = self.scope.bindings.iter().any(|binding| binding.name == name)
                || self.scope.definitions.contains_key(name)
                || self.scope.image.variable(name).is_some();
            !shadowed && self.types().named(name).is_some()
        };
        syntax::parse(source, &is_type)
    }

    fn shape(&self, ty: &Ty) -> Shape {
        let id = match ty {
            Ty::Integer { size, signed } => return Shape::Integer { size: *size, signed: *signed },
            Ty::Pointer(to) => return Shape::Pointer((**to).clone()),
            Ty::Text => return Shape::Text,
            Ty::Known(id) => self.types().strip(*id),
        };
        match self.types().get(id) {
            Type::Integer { size, signed, .. } => {
                Shape::Integer { size: (*size).clamp(1, 8), signed: *signed }
            }
            Type::Enum { size, enumerators, .. } => {
                let signed = enumerators.iter().any(|(_, value)| *value < 0);
                Shape::Integer { size: (*size).clamp(1, 8), signed }
            }
            Type::Pointer { to, .. } => Shape::Pointer(Ty::Known(*to)),
            Type::Array { of, .. } => Shape::Array(Ty::Known(*of)),
            Type::Struct { .. } => Shape::Struct(id),
            Type::Function { .. } => Shape::Function,
            Type::Float { .. } => Shape::Float,
            Type::Void | Type::Typedef { .. } | Type::Qualified { .. } => Shape::Void,
        }
    }

    fn size(&self, ty: &Ty) -> Option<u64> {
        match ty {
            Ty::Known(id) => self.types().size(*id),
            Ty::Integer { size, .. } => Some(u64::from(*size)),
            Ty::Pointer(_) => Some(u64::from(self.word())),
            Ty::Text => None,
        }
    }

    fn describe(&self, ty: &Ty) -> String {
        match ty {
            Ty::Known(id) => self.types().display(*id),
            Ty::Integer { size, signed } => {
                format!("{}{}-bit integer", if *signed { "" } else { "unsigned " }, 8 * u32::from(*size))
            }
            Ty::Pointer(to) => format!("{} *", self.describe(to)),
            Ty::Text => "text".into(),
        }
    }

    /// Loads a place, lets arrays and functions decay to addresses.
    fn value(&self, operand: Operand, span: &Span) -> Result<(Code, Ty), Problem> {
        let (at, offset, ty, bits) = match operand {
            Operand::Value { code, ty } => return Ok((code, ty)),
            Operand::Text(_) => {
                return Err(Problem::new(span.clone(), "a number is expected, but this is a text"));
            }
            Operand::Place { at, offset, ty, bits } => (at, offset, ty, bits),
        };
        let address = |at: Code| self.add_offset(at, offset);
        match self.shape(&ty) {
            Shape::Integer { size, signed } => {
                if let Some((first, width)) = bits {
                    return Ok((Code::Bits { at: Box::new(at), offset, first, width, signed }, ty));
                }
                Ok((Code::Load { at: Box::new(at), offset, size, signed }, ty))
            }
            Shape::Pointer(_) => {
                Ok((Code::Load { at: Box::new(at), offset, size: self.word(), signed: false }, ty))
            }
            Shape::Array(of) => Ok((address(at), Ty::Pointer(Arc::new(of)))),
            Shape::Function | Shape::Void => Ok((address(at), Ty::Pointer(Arc::new(ty)))),
            Shape::Struct(_) => Err(Problem::new(
                span.clone(),
                format!(
                    "a number is expected, but this is '{}'; choose a member with '.'",
                    self.describe(&ty)
                ),
            )),
            Shape::Float | Shape::Text => {
                Err(Problem::new(span.clone(), format!("{} cannot be computed with", self.describe(&ty))))
            }
        }
    }

    fn add_offset(&self, at: Code, offset: u64) -> Code {
        if offset == 0 {
            return at;
        }
        let of = Box::new((at, Code::Constant(offset)));
        fold(Code::Binary { operation: Binary::Add, of, size: self.word(), signed: false })
    }

    fn number(&mut self, node: &Node) -> Result<(Code, Ty), Problem> {
        let operand = self.operand(node)?;
        self.value(operand, &node.span)
    }

    fn operand(&mut self, node: &Node) -> Result<Operand, Problem> {
        let span = &node.span;
        match &node.kind {
            Kind::Number { value, unsigned } => {
                let fits = |size: u8, signed: bool| narrow(*value, size, signed) == *value;
                let ty = match (fits(4, true), fits(4, false)) {
                    (true, _) if !unsigned && *value < 1 << 31 => INT,
                    (_, true) => Ty::Integer { size: 4, signed: false },
                    _ => Ty::Integer { size: 8, signed: !unsigned && *value < 1 << 63 },
                };
                Ok(Operand::Value { code: Code::Constant(*value), ty })
            }
            Kind::Text(text) => Ok(Operand::Text(TextCode::Literal(text.clone()))),
            Kind::Name(name) => self.name(name, span),
            Kind::Register(name) => self.register(name, span),
            Kind::Member { of, name, at, arrow } => self.member(of, name, *arrow, at),
            Kind::Index { of, index } => {
                let (base, ty) = self.number(of)?;
                let (index, index_ty) = self.number(index)?;
                let sum = self.pointer_step(Binary::Add, base, &ty, index, &index_ty, span)?;
                self.dereference(sum.0, &sum.1, span)
            }
            Kind::Unary { operation, of } => self.unary(*operation, of, span),
            Kind::Binary { operation, left, right } => {
                let (left, left_ty) = self.number(left)?;
                // What cannot matter need not make sense: `defined(x) && x->y` is fine without an x.
                match (operation, constant(&left)) {
                    (Binary::And, Some(0)) => return Ok(Operand::Value { code: Code::Constant(0), ty: INT }),
                    (Binary::Or, Some(value)) if value != 0 => {
                        return Ok(Operand::Value { code: Code::Constant(1), ty: INT });
                    }
                    _ => {}
                }
                let (right, right_ty) = self.number(right)?;
                let (code, ty) = self.binary(*operation, (left, left_ty), (right, right_ty), span)?;
                Ok(Operand::Value { code: fold(code), ty })
            }
            Kind::Conditional { condition, yes, no } => {
                let (condition, _) = self.number(condition)?;
                if let Some(value) = constant(&condition) {
                    return self.operand(if value != 0 { yes } else { no });
                }
                let (yes, ty) = self.number(yes)?;
                let (no, no_ty) = self.number(no)?;
                let ty = match (self.shape(&ty), self.shape(&no_ty)) {
                    (Shape::Integer { .. }, Shape::Integer { .. }) => self.common(&ty, &no_ty),
                    _ => ty,
                };
                Ok(Operand::Value { code: Code::If(Box::new((condition, yes, no))), ty })
            }
            Kind::Cast { to, of } => {
                let (code, _) = self.number(of)?;
                let ty = self.type_name(to)?;
                match self.shape(&ty) {
                    Shape::Integer { size, signed } => Ok(Operand::Value {
                        code: fold(Code::Narrow { of: Box::new(code), size, signed }),
                        ty,
                    }),
                    Shape::Pointer(_) => {
                        let size = self.word();
                        Ok(Operand::Value {
                            code: fold(Code::Narrow { of: Box::new(code), size, signed: false }),
                            ty,
                        })
                    }
                    _ => Err(Problem::new(
                        to.span.clone(),
                        format!("a cast to {} is not possible; cast to a pointer to it", self.describe(&ty)),
                    )),
                }
            }
            Kind::SizeOfType(ty) => {
                let known = self.type_name(ty)?;
                self.size_of(&known, &ty.span)
            }
            Kind::SizeOf(of) => {
                let ty = match self.operand(of)? {
                    Operand::Place { ty, .. } | Operand::Value { ty, .. } => ty,
                    Operand::Text(_) => Ty::Text,
                };
                self.size_of(&ty, &of.span)
            }
            Kind::Call { function, arguments, open } => self.call(function, arguments, *open, span),
        }
    }

    fn size_of(&self, ty: &Ty, span: &Span) -> Result<Operand, Problem> {
        let size = self.size(ty).ok_or_else(|| {
            Problem::new(span.clone(), format!("the size of {} is not known", self.describe(ty)))
        })?;
        Ok(Operand::Value {
            code: Code::Constant(size),
            ty: Ty::Integer { size: self.word(), signed: false },
        })
    }

    fn type_name(&self, name: &TypeName) -> Result<Ty, Problem> {
        let types = self.types();
        let unknown = |kind: &str, wrong: &str, near: Vec<String>| {
            Problem::new(name.span.clone(), format!("there is no {kind} '{wrong}'{}", suggestion(&near)))
        };
        let base = match &name.base {
            Base::Void => Ty::Known(TypeId::VOID),
            Base::Integer { size, signed } => {
                let size = match size {
                    IntegerSize::Char => 1,
                    IntegerSize::Short => 2,
                    IntegerSize::Int => 4,
                    IntegerSize::Long => self.word(),
                    IntegerSize::LongLong => 8,
                };
                Ty::Integer { size, signed: *signed }
            }
            Base::Struct(wanted) => Ty::Known(
                types
                    .structure(wanted)
                    .ok_or_else(|| unknown("struct", wanted, nearest(wanted, types.names())))?,
            ),
            Base::Enum(wanted) => Ty::Known(
                types
                    .enumeration(wanted)
                    .ok_or_else(|| unknown("enum", wanted, nearest(wanted, types.names())))?,
            ),
            Base::Named(wanted) => Ty::Known(
                types.named(wanted).ok_or_else(|| unknown("type", wanted, nearest(wanted, types.names())))?,
            ),
        };
        Ok((0..name.pointers).fold(base, |ty, _| Ty::Pointer(Arc::new(ty))))
    }

    fn name(&mut self, name: &str, span: &Span) -> Result<Operand, Problem> {
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
        let variables = image.variables(name);
        let own = self.scope.function.and_then(|function| {
            variables.iter().find(|variable| variable.function.as_deref() == Some(&*function.name))
        });
        if let Some(variable) = own.or(variables.first()) {
            let at = Code::Constant(variable.address);
            return Ok(Operand::Place { at, offset: 0, ty: Ty::Known(variable.ty), bits: None });
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

    fn parameters(&self) -> Option<&[Local]> {
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
    fn argument(&mut self, index: u64, span: &Span) -> Result<Operand, Problem> {
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
            None => Ty::Integer { size: word, signed: true },
        };
        let home = self.home(index as usize, slot, span)?;
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
    fn home(&self, index: usize, slot: u64, span: &Span) -> Result<ArgumentHome, Problem> {
        let convention = ArgumentHome::Convention(slot as u8);
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
                Ok(number.map_or(convention, |number| ArgumentHome::Register(number as u8)))
            }
            gimli::DW_OP_fbreg if architecture == Architecture::X86 => {
                let mut rest = gimli::EndianSlice::new(&expression[1..], gimli::LittleEndian);
                let offset = gimli::Reader::read_sleb128(&mut rest).unwrap_or(-1);
                let subprogram = self.scope.image.subprogram(function);
                let base = subprogram.and_then(|subprogram| subprogram.frame_base.at(function.start.0));
                let from_cfa = base == Some(&[gimli::DW_OP_call_frame_cfa.0]);
                match u8::try_from(offset / 4) {
                    Ok(slot) if from_cfa && offset >= 0 => Ok(ArgumentHome::Convention(slot)),
                    _ => Ok(convention),
                }
            }
            _ => Ok(convention),
        }
    }

    fn definition(&mut self, name: &str, definition: &str, span: &Span) -> Result<Operand, Problem> {
        if self.expanding.iter().any(|open| open == name) {
            return Err(Problem::new(span.clone(), format!("the definition of '{name}' uses itself")));
        }
        self.expanding.push(name.to_string());
        // Spans of a definition mean nothing outside of it: its problems are told where it is used.
        let within = |problem: Problem| match problem.message.starts_with("in the definition of") {
            true => Problem::new(span.clone(), problem.message),
            false => Problem::new(span.clone(), format!("in the definition of '{name}': {problem}")),
        };
        let node = self.parse(definition).map_err(within)?;
        let operand = self.operand(&node).map_err(within)?;
        self.expanding.pop();
        Ok(operand)
    }

    fn register(&self, name: &str, span: &Span) -> Result<Operand, Problem> {
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

    fn member(&mut self, of: &Node, name: &str, arrow: bool, span: &Span) -> Result<Operand, Problem> {
        let (at, base, id) = if arrow {
            let (code, ty) = self.number(of)?;
            let Shape::Pointer(to) = self.shape(&ty) else {
                return Err(Problem::new(
                    of.span.clone(),
                    format!(
                        "'->' needs a pointer to a struct, but this is '{}'; cast it",
                        self.describe(&ty)
                    ),
                ));
            };
            let Shape::Struct(id) = self.shape(&to) else {
                return Err(Problem::new(
                    of.span.clone(),
                    format!(
                        "'->' needs a pointer to a struct, but this is '{}'; cast it",
                        self.describe(&ty)
                    ),
                ));
            };
            (code, 0, id)
        } else {
            let operand = self.operand(of)?;
            let (Operand::Place { ty, .. } | Operand::Value { ty, .. }) = &operand else {
                return Err(Problem::new(of.span.clone(), "a text has no members"));
            };
            let ty = ty.clone();
            match (operand, self.shape(&ty)) {
                (Operand::Place { at, offset, .. }, Shape::Struct(id)) => (at, offset, id),
                (_, Shape::Pointer(_)) => {
                    return Err(Problem::new(
                        span.clone(),
                        format!("'.' needs a struct, but this is '{}'; write '->'", self.describe(&ty)),
                    ));
                }
                _ => {
                    return Err(Problem::new(
                        of.span.clone(),
                        format!("'.' needs a struct, but this is '{}'", self.describe(&ty)),
                    ));
                }
            }
        };
        let Some(member) = self.types().member(id, name) else {
            let names = self.types().member_names(id);
            let near = suggestion(&nearest(name, names.iter().map(|name| &**name)));
            let owner = self.types().display(id);
            return Err(Problem::new(span.clone(), format!("{owner} has no member '{name}'{near}")));
        };
        let offset = base.wrapping_add(member.offset);
        Ok(Operand::Place { at, offset, ty: Ty::Known(member.ty), bits: member.bits })
    }

    fn dereference(&self, code: Code, ty: &Ty, span: &Span) -> Result<Operand, Problem> {
        let Shape::Pointer(to) = self.shape(ty) else {
            return Err(Problem::new(
                span.clone(),
                format!("'*' needs a pointer, but this is '{}'; cast it", self.describe(ty)),
            ));
        };
        if let Shape::Void = self.shape(&to) {
            return Err(Problem::new(span.clone(), "a void pointer has to be cast before it is followed"));
        }
        Ok(Operand::Place { at: code, offset: 0, ty: to, bits: None })
    }

    fn unary(&mut self, operation: Unary, of: &Node, span: &Span) -> Result<Operand, Problem> {
        if operation == Unary::Address {
            return match self.operand(of)? {
                Operand::Place { bits: Some(_), .. } => {
                    Err(Problem::new(span.clone(), "a bit field has no address"))
                }
                Operand::Place { at, offset, ty, .. } => {
                    Ok(Operand::Value { code: self.add_offset(at, offset), ty: Ty::Pointer(Arc::new(ty)) })
                }
                // The name of a function or label is its address already.
                Operand::Value { code: code @ Code::Constant(_), ty } if matches!(of.kind, Kind::Name(_)) => {
                    Ok(Operand::Value { code, ty })
                }
                _ => Err(Problem::new(span.clone(), "this has no address")),
            };
        }
        let (code, ty) = self.number(of)?;
        if operation == Unary::Dereference {
            return self.dereference(code, &ty, span);
        }
        if operation == Unary::Not {
            return Ok(Operand::Value { code: fold(Code::Not(Box::new(code))), ty: INT });
        }
        let ty = self.common(&ty, &INT);
        let Shape::Integer { size, signed } = self.shape(&ty) else {
            return Err(Problem::new(
                span.clone(),
                format!("this cannot be done with a {}", self.describe(&ty)),
            ));
        };
        let of = Box::new(code);
        let code = match operation {
            Unary::Negate => Code::Negate { of, size, signed },
            Unary::Complement => Code::Complement { of, size, signed },
            _ => *of,
        };
        Ok(Operand::Value { code: fold(code), ty })
    }

    /// The usual arithmetic conversions, for integers; a pointer counts as an unsigned word.
    fn common(&self, left: &Ty, right: &Ty) -> Ty {
        let rank = |ty: &Ty| match self.shape(ty) {
            Shape::Integer { size, .. } if size < 4 => (4, true),
            Shape::Integer { size, signed } => (size, signed),
            _ => (self.word(), false),
        };
        let ((a, a_signed), (b, b_signed)) = (rank(left), rank(right));
        let signed = match a.cmp(&b) {
            std::cmp::Ordering::Less => b_signed,
            std::cmp::Ordering::Greater => a_signed,
            std::cmp::Ordering::Equal => a_signed && b_signed,
        };
        Ty::Integer { size: a.max(b), signed }
    }

    fn binary(
        &self,
        operation: Binary,
        (left, left_ty): (Code, Ty),
        (right, right_ty): (Code, Ty),
        span: &Span,
    ) -> Result<(Code, Ty), Problem> {
        match operation {
            Binary::And => return Ok((Code::And(Box::new((left, right))), INT)),
            Binary::Or => return Ok((Code::Or(Box::new((left, right))), INT)),
            Binary::Add | Binary::Subtract => {
                let pointers = (self.shape(&left_ty), self.shape(&right_ty));
                match (operation, &pointers.0, &pointers.1) {
                    (Binary::Subtract, Shape::Pointer(to), Shape::Pointer(_)) => {
                        let size = self.size(to).unwrap_or(1).max(1);
                        let ty = Ty::Integer { size: self.word(), signed: true };
                        let minus = Code::Binary {
                            operation,
                            of: Box::new((left, right)),
                            size: self.word(),
                            signed: true,
                        };
                        let of = Box::new((minus, Code::Constant(size)));
                        let code =
                            Code::Binary { operation: Binary::Divide, of, size: self.word(), signed: true };
                        return Ok((code, ty));
                    }
                    (_, Shape::Pointer(_), _) => {
                        return self.pointer_step(operation, left, &left_ty, right, &right_ty, span);
                    }
                    (Binary::Add, _, Shape::Pointer(_)) => {
                        return self.pointer_step(operation, right, &right_ty, left, &left_ty, span);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        let shifts = matches!(operation, Binary::ShiftLeft | Binary::ShiftRight);
        let common = if shifts { self.common(&left_ty, &INT) } else { self.common(&left_ty, &right_ty) };
        let Ty::Integer { size, signed } = common else { unreachable!("conversions give integers") };
        let ty = if operation.compares() { INT } else { common };
        Ok((Code::Binary { operation, of: Box::new((left, right)), size, signed }, ty))
    }

    fn pointer_step(
        &self,
        operation: Binary,
        base: Code,
        ty: &Ty,
        index: Code,
        index_ty: &Ty,
        span: &Span,
    ) -> Result<(Code, Ty), Problem> {
        let Shape::Pointer(to) = self.shape(ty) else {
            return Err(Problem::new(
                span.clone(),
                format!("only pointers and arrays can be indexed, but this is '{}'", self.describe(ty)),
            ));
        };
        let Shape::Integer { .. } = self.shape(index_ty) else {
            return Err(Problem::new(span.clone(), "an index must be a number"));
        };
        let size = self.word();
        let step = match self.shape(&to) {
            Shape::Void | Shape::Function => 1,
            _ => self.size(&to).ok_or_else(|| {
                Problem::new(span.clone(), format!("the size of {} is not known", self.describe(&to)))
            })?,
        };
        let scaled = match step {
            1 => index,
            step => fold(Code::Binary {
                operation: Binary::Multiply,
                of: Box::new((index, Code::Constant(step))),
                size,
                signed: false,
            }),
        };
        let code = fold(Code::Binary { operation, of: Box::new((base, scaled)), size, signed: false });
        Ok((code, ty.clone()))
    }

    fn call(
        &mut self,
        function: &str,
        arguments: &[Argument],
        open: bool,
        span: &Span,
    ) -> Result<Operand, Problem> {
        const KNOWN: [&str; 7] =
            ["arg", "defined", "offset_of", "container_of", "string", "format", "vformat"];
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
                let known = self.scope.image.type_of(name).is_some() || self.name(name, span).is_ok();
                Ok(Operand::Value { code: Code::Constant(u64::from(known)), ty: INT })
            }
            ("defined", [Argument::Type(_)]) => Ok(Operand::Value { code: Code::Constant(1), ty: INT }),
            ("defined", _) => Err(wrong("defined(NAME)")),
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
            ("format", [Argument::Value(fmt), values @ ..]) => {
                let pattern = self.text_of(fmt)?;
                let list = if open {
                    if !values.is_empty() {
                        return Err(wrong("format(FORMAT, ...) or format(FORMAT, VALUE, VALUE)"));
                    }
                    if self.homes.is_empty() || self.scope.returns {
                        return Err(Problem::new(
                            span.clone(),
                            "'...' stands for the arguments after the format, so that has to be an argument of a \
                             function being entered",
                        ));
                    }
                    Arguments::Rest { first: self.homes.len() as u8 }
                } else {
                    let mut list = Vec::new();
                    for value in values {
                        let Argument::Value(value) = value else {
                            return Err(wrong("format(FORMAT, VALUE …)"));
                        };
                        list.push(self.text_of(value)?);
                    }
                    Arguments::Values(list)
                };
                Ok(Operand::Text(TextCode::Format { pattern: Box::new(pattern), arguments: list }))
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
    fn text(&mut self, node: &Node, operand: &Operand, span: &Span) -> Result<TextCode, Problem> {
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

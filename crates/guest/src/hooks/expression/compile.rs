//! From the tree to resolved code: names become addresses, members become offsets, types disappear.

use super::format::TextCode;
use super::syntax::{self, Base, Binary, IntegerSize, Kind, Node, TypeName, Unary};
use super::{ArgumentHome, Code, Compiled, Expression, Machine, Problem, Span, narrow};
use crate::elf::image::{Function, Image};
use crate::elf::location::{self, Home, Surroundings};
use crate::elf::nearest::{nearest, suggestion};
use crate::elf::types::{Type, TypeId, Types};
use crate::state::{Architecture, Memory, Registers};
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
    pub(super) image: Arc<Image>,
    pub(super) expression: Box<[u8]>,
    pub(super) frame_base: Option<Box<[u8]>>,
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

    pub(super) fn in_memory(&self) -> bool {
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
pub(super) enum Operand {
    Place { at: Code, offset: u64, ty: Ty, bits: Option<(u8, u8)> },
    Value { code: Code, ty: Ty },
    Text(TextCode),
}

/// A type with names and qualifiers taken off.
pub(super) enum Shape {
    Integer { size: u8, signed: bool },
    Pointer(Ty),
    Array(Ty),
    Struct(TypeId),
    Function,
    Void,
    Float,
    Text,
}

pub(super) const INT: Ty = Ty::Integer { size: 4, signed: true };

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
        of_registers: code.reads_registers(),
        code,
        ty,
        points_to,
        text,
        homes: compiler.homes,
    })))
}

pub(super) struct Compiler<'a, 's> {
    pub(super) scope: &'a Scope<'s>,
    pub(super) homes: Vec<ArgumentHome>,
    /// Definitions being expanded, to notice circles.
    pub(super) expanding: Vec<String>,
}

fn constant(code: &Code) -> Option<u64> {
    match code {
        Code::Constant(value) => Some(*value),
        _ => None,
    }
}

/// Computes now what depends on nothing.
pub(super) fn fold(code: Code) -> Code {
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
    pub(super) fn types(&self) -> &Types {
        self.scope.image.types()
    }

    pub(super) fn word(&self) -> u8 {
        self.scope.image.architecture.word() as u8
    }

    pub(super) fn parse(&self, source: &str) -> Result<Node, Problem> {
        let is_type = |name: &str| {
            let shadowed = self.scope.bindings.iter().any(|binding| binding.name == name)
                || self.scope.definitions.contains_key(name)
                || self.scope.image.variable(name).is_some();
            !shadowed && self.types().named(name).is_some()
        };
        syntax::parse(source, &is_type)
    }

    pub(super) fn shape(&self, ty: &Ty) -> Shape {
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

    pub(super) fn size(&self, ty: &Ty) -> Option<u64> {
        match ty {
            Ty::Known(id) => self.types().size(*id),
            Ty::Integer { size, .. } => Some(u64::from(*size)),
            Ty::Pointer(_) => Some(u64::from(self.word())),
            Ty::Text => None,
        }
    }

    pub(super) fn describe(&self, ty: &Ty) -> String {
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
    pub(super) fn value(&self, operand: Operand, span: &Span) -> Result<(Code, Ty), Problem> {
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

    pub(super) fn add_offset(&self, at: Code, offset: u64) -> Code {
        if offset == 0 {
            return at;
        }
        let of = Box::new((at, Code::Constant(offset)));
        fold(Code::Binary { operation: Binary::Add, of, size: self.word(), signed: false })
    }

    pub(super) fn number(&mut self, node: &Node) -> Result<(Code, Ty), Problem> {
        let operand = self.operand(node)?;
        self.value(operand, &node.span)
    }

    pub(super) fn operand(&mut self, node: &Node) -> Result<Operand, Problem> {
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

    pub(super) fn type_name(&self, name: &TypeName) -> Result<Ty, Problem> {
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
}

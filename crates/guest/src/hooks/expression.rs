//! Expressions of C over a kernel's own types and variables, compiled once and evaluated many times.
//!
//! What can be written: integers, characters, enumerators, variables of the kernel, `$esp` and the other
//! registers, `arg0 …` (or the parameter's own name) of the function a hook is on, `ret` when it returns,
//! names that the place binds (`t`, a thread), every operator of C but assignment, casts, `sizeof`, and the
//! functions `defined(name)`, `static("file.c", name)`, `offset_of(type, member)`, `container_of(pointer,
//! type, member)`, `string(pointer)`, `format(fmt, values…)`, `format(fmt, ...)` (the further arguments of
//! the hooked function) and `vformat(fmt, va_list)`.
//!
//! Contract: compiling resolves every name, offset and size, and reports a wrong one with its place and the
//! nearest right names. Evaluating reads memory and registers only, never fails otherwise than by
//! [`Trouble`], and costs tens of nanoseconds. Arithmetic is that of C: operands are promoted, results wrap.
//! Not modelled: floating point.

mod calls;
mod compile;
mod format;
mod names;
pub(crate) mod syntax;

pub use compile::{Binding, Scope, Ty};

use crate::state::{Architecture, Memory, Registers};
use format::TextCode;
use std::fmt;
use std::sync::Arc;
use syntax::Binary;
use trace::VirtAddr;

pub type Span = std::ops::Range<usize>;

/// So many arguments fit into what is noted of a stack, behind the return address, where all of them are there.
const PASSED_ARGUMENTS_MAX: usize = 6;

/// What is wrong with the text of an expression, and where in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub span: Span,
    pub message: String,
}

impl Problem {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Self {
        Problem { span, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.message, self.span.start + 1)
    }
}

/// Why an evaluation has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    Unreadable(VirtAddr),
    DivisionByZero,
    /// An argument or local that is not known at this place.
    Unknown,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreadable(addr) => write!(f, "memory at {addr} cannot be read"),
            Trouble::DivisionByZero => f.write_str("division by zero"),
            Trouble::Unknown => f.write_str("a value it needs is not known here"),
        }
    }
}

/// What the evaluation happens in.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub registers: &'a Registers,
    /// Arguments as they were when the function was entered (see [`Expression::arguments`]). `None`: it
    /// stands at its first instruction, and they are found where the calling convention puts them.
    pub arguments: Option<&'a [u64]>,
    /// Values of the names that the scope bound, in its order.
    pub bound: &'a [u64],
}

impl<'a> Inputs<'a> {
    #[must_use]
    pub fn new(registers: &'a Registers) -> Self {
        Inputs { registers, arguments: None, bound: &[] }
    }
}

/// Where an argument word is when a function is entered. Compilers pass arguments of functions that only one
/// file calls in registers, whatever the convention says; debugging information tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentHome {
    /// Where the calling convention puts the argument of this position.
    Convention(u8),
    Register(u8),
}

impl ArgumentHome {
    pub fn read<M: Memory + ?Sized>(
        self,
        architecture: Architecture,
        registers: &Registers,
        memory: &M,
    ) -> Option<u64> {
        match self {
            ArgumentHome::Convention(index) => registers.argument(architecture, usize::from(index), memory),
            ArgumentHome::Register(number) => registers.general.get(usize::from(number)).copied(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    Pc,
    Flags,
    Interrupts,
    Ring,
    Cr2,
    Cr3,
    Cpu,
}

/// An expression with every name resolved. Values are kept in 64 bits, extended by the sign of their type.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    Constant(u64),
    Register {
        number: u8,
        size: u8,
    },
    Special(Special),
    Argument(u8),
    Returned,
    Bound(u8),
    /// The address (or the value) of a local of the function at pc.
    Local(Arc<compile::LocalHome>),
    Load {
        at: Box<Code>,
        offset: u64,
        size: u8,
        signed: bool,
    },
    Bits {
        at: Box<Code>,
        offset: u64,
        first: u8,
        width: u8,
        signed: bool,
    },
    Binary {
        operation: Binary,
        of: Box<(Code, Code)>,
        size: u8,
        signed: bool,
    },
    Negate {
        of: Box<Code>,
        size: u8,
        signed: bool,
    },
    Complement {
        of: Box<Code>,
        size: u8,
        signed: bool,
    },
    Not(Box<Code>),
    And(Box<(Code, Code)>),
    Or(Box<(Code, Code)>),
    If(Box<(Code, Code, Code)>),
    Narrow {
        of: Box<Code>,
        size: u8,
        signed: bool,
    },
}

impl Code {
    /// Whether the value depends on registers or arguments.
    fn reads_registers(&self) -> bool {
        match self {
            Code::Constant(_) | Code::Bound(_) => false,
            Code::Register { .. }
            | Code::Special(_)
            | Code::Argument(_)
            | Code::Returned
            | Code::Local(_) => true,
            Code::Load { at: of, .. }
            | Code::Bits { at: of, .. }
            | Code::Negate { of, .. }
            | Code::Complement { of, .. }
            | Code::Not(of)
            | Code::Narrow { of, .. } => of.reads_registers(),
            Code::Binary { of, .. } | Code::And(of) | Code::Or(of) => {
                of.0.reads_registers() || of.1.reads_registers()
            }
            Code::If(of) => of.0.reads_registers() || of.1.reads_registers() || of.2.reads_registers(),
        }
    }

    /// Whether the value depends on nothing but general registers, arguments and what is bound.
    fn is_of_registers(&self) -> bool {
        match self {
            Code::Constant(_)
            | Code::Bound(_)
            | Code::Register { .. }
            | Code::Argument(_)
            | Code::Returned
            | Code::Special(Special::Pc | Special::Ring | Special::Cr3 | Special::Cpu) => true,
            Code::Special(Special::Flags | Special::Interrupts | Special::Cr2)
            | Code::Local(_)
            | Code::Load { .. }
            | Code::Bits { .. } => false,
            Code::Negate { of, .. }
            | Code::Complement { of, .. }
            | Code::Not(of)
            | Code::Narrow { of, .. } => of.is_of_registers(),
            Code::Binary { of, .. } | Code::And(of) | Code::Or(of) => {
                of.0.is_of_registers() && of.1.is_of_registers()
            }
            Code::If(of) => of.0.is_of_registers() && of.1.is_of_registers() && of.2.is_of_registers(),
        }
    }

    /// Calls `found` for each load from a constant address.
    fn each_load(&self, found: &mut impl FnMut(u64, u8)) {
        match self {
            Code::Constant(_)
            | Code::Register { .. }
            | Code::Special(_)
            | Code::Argument(_)
            | Code::Returned
            | Code::Bound(_)
            | Code::Local(_) => {}
            Code::Load { at, offset, size, .. } => match **at {
                Code::Constant(base) => found(base.wrapping_add(*offset), *size),
                ref at => at.each_load(found),
            },
            Code::Bits { at, offset, .. } => match **at {
                Code::Constant(base) => found(base.wrapping_add(*offset), 8),
                ref at => at.each_load(found),
            },
            Code::Binary { of, .. } | Code::And(of) | Code::Or(of) => {
                of.0.each_load(found);
                of.1.each_load(found);
            }
            Code::Negate { of, .. }
            | Code::Complement { of, .. }
            | Code::Not(of)
            | Code::Narrow { of, .. } => {
                of.each_load(found);
            }
            Code::If(of) => {
                of.0.each_load(found);
                of.1.each_load(found);
                of.2.each_load(found);
            }
        }
    }
}

/// A number as a type of `size` bytes holds it.
pub(crate) fn narrow(value: u64, size: u8, signed: bool) -> u64 {
    let shift = 64 - 8 * u32::from(size.clamp(1, 8));
    if signed { (((value << shift) as i64) >> shift) as u64 } else { (value << shift) >> shift }
}

pub(crate) struct Machine<'a, M: ?Sized> {
    pub architecture: Architecture,
    pub memory: &'a M,
    pub inputs: &'a Inputs<'a>,
    pub homes: &'a [ArgumentHome],
}

impl<M: Memory + ?Sized> Machine<'_, M> {
    fn address_mask(&self) -> u64 {
        if self.architecture.word() == 4 { 0xffff_ffff } else { u64::MAX }
    }

    fn argument(&self, index: usize) -> Result<u64, Trouble> {
        let value = match self.inputs.arguments {
            Some(arguments) => arguments.get(index).copied(),
            None => {
                let home = self.homes.get(index).copied().unwrap_or(ArgumentHome::Convention(index as u8));
                home.read(self.architecture, self.inputs.registers, self.memory)
            }
        };
        value.ok_or(Trouble::Unknown)
    }

    /// An argument behind the named ones, which is always where the convention says.
    fn further_argument(&self, index: usize) -> Result<u64, Trouble> {
        self.inputs.registers.argument(self.architecture, index, self.memory).ok_or(Trouble::Unknown)
    }

    fn load(&self, addr: u64, size: usize) -> Result<u64, Trouble> {
        let addr = VirtAddr(addr & self.address_mask());
        self.memory.read_uint(addr, size).ok_or(Trouble::Unreadable(addr))
    }

    pub(crate) fn run(&self, code: &Code) -> Result<u64, Trouble> {
        let registers = self.inputs.registers;
        Ok(match code {
            Code::Constant(value) => *value,
            Code::Register { number, size } => {
                narrow(registers.general.get(usize::from(*number)).copied().unwrap_or(0), *size, false)
            }
            Code::Special(special) => match special {
                Special::Pc => registers.pc,
                Special::Flags => registers.flags,
                Special::Interrupts => u64::from(registers.interrupts_enabled()),
                Special::Ring => u64::from(registers.ring),
                Special::Cr2 => registers.cr2,
                Special::Cr3 => registers.cr3,
                Special::Cpu => u64::from(registers.cpu),
            },
            Code::Argument(index) => self.argument(usize::from(*index))?,
            Code::Returned => registers.returned(self.architecture),
            Code::Bound(index) => {
                self.inputs.bound.get(usize::from(*index)).copied().ok_or(Trouble::Unknown)?
            }
            Code::Local(local) => local.find(registers, self.memory).ok_or(Trouble::Unknown)?,
            Code::Load { at, offset, size, signed } => {
                let value = self.load(self.run(at)?.wrapping_add(*offset), usize::from(*size))?;
                narrow(value, *size, *signed)
            }
            Code::Bits { at, offset, first, width, signed } => {
                let bytes = (u32::from(*first) + u32::from(*width)).div_ceil(8).min(8);
                let value = self.load(self.run(at)?.wrapping_add(*offset), bytes as usize)? >> first;
                let shift = 64 - u32::from(*width);
                if *signed { (((value << shift) as i64) >> shift) as u64 } else { (value << shift) >> shift }
            }
            Code::Binary { operation, of, size, signed } => {
                let (left, right) = (self.run(&of.0)?, self.run(&of.1)?);
                arithmetic(*operation, left, right, *size, *signed)?
            }
            Code::Negate { of, size, signed } => narrow(self.run(of)?.wrapping_neg(), *size, *signed),
            Code::Complement { of, size, signed } => narrow(!self.run(of)?, *size, *signed),
            Code::Not(of) => u64::from(self.run(of)? == 0),
            Code::And(of) => u64::from(self.run(&of.0)? != 0 && self.run(&of.1)? != 0),
            Code::Or(of) => u64::from(self.run(&of.0)? != 0 || self.run(&of.1)? != 0),
            Code::If(of) => {
                if self.run(&of.0)? != 0 {
                    self.run(&of.1)?
                } else {
                    self.run(&of.2)?
                }
            }
            Code::Narrow { of, size, signed } => narrow(self.run(of)?, *size, *signed),
        })
    }
}

fn arithmetic(operation: Binary, left: u64, right: u64, size: u8, signed: bool) -> Result<u64, Trouble> {
    let (left, right) = (narrow(left, size, signed), narrow(right, size, signed));
    let order = if signed { (left as i64).cmp(&(right as i64)) } else { left.cmp(&right) };
    let shift = (right as u32) & (8 * u32::from(size) - 1);
    let value = match operation {
        Binary::Multiply => left.wrapping_mul(right),
        Binary::Divide | Binary::Remainder if right == 0 => return Err(Trouble::DivisionByZero),
        Binary::Divide if signed => (left as i64).wrapping_div(right as i64) as u64,
        Binary::Divide => left / right,
        Binary::Remainder if signed => (left as i64).wrapping_rem(right as i64) as u64,
        Binary::Remainder => left % right,
        Binary::Add => left.wrapping_add(right),
        Binary::Subtract => left.wrapping_sub(right),
        Binary::ShiftLeft => left << shift,
        Binary::ShiftRight if signed => ((left as i64) >> shift) as u64,
        Binary::ShiftRight => left >> shift,
        Binary::BitAnd => left & right,
        Binary::BitXor => left ^ right,
        Binary::BitOr => left | right,
        Binary::Less => return Ok(u64::from(order.is_lt())),
        Binary::LessOrEqual => return Ok(u64::from(order.is_le())),
        Binary::Greater => return Ok(u64::from(order.is_gt())),
        Binary::GreaterOrEqual => return Ok(u64::from(order.is_ge())),
        Binary::Equal => return Ok(u64::from(order.is_eq())),
        Binary::NotEqual => return Ok(u64::from(order.is_ne())),
        Binary::And => u64::from(left != 0 && right != 0),
        Binary::Or => u64::from(left != 0 || right != 0),
    };
    Ok(narrow(value, size, signed))
}

/// A compiled expression. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Expression(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    source: String,
    architecture: Architecture,
    code: Code,
    ty: Ty,
    points_to: Option<crate::elf::types::TypeId>,
    text: TextCode,
    /// Whether the value depends on registers or arguments.
    of_registers: bool,
    homes: Vec<ArgumentHome>,
}

impl Expression {
    /// Compiles `source`, with the names that `scope` makes known.
    pub fn compile(source: &str, scope: &Scope<'_>) -> Result<Expression, Problem> {
        compile::compile(source, scope)
    }

    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// How many arguments must be kept from the entry of the function if the evaluation happens later.
    #[must_use]
    pub fn arguments(&self) -> usize {
        self.0.homes.len()
    }

    /// Where those arguments are at the entry.
    #[must_use]
    pub fn homes(&self) -> &[ArgumentHome] {
        &self.0.homes
    }

    /// The value, extended to 64 bits by its type's sign.
    pub fn value<M: Memory + ?Sized>(&self, memory: &M, inputs: &Inputs<'_>) -> Result<u64, Trouble> {
        self.machine(memory, inputs).run(&self.0.code)
    }

    /// Whether the value depends on memory and bound names alone.
    #[must_use]
    pub fn is_of_memory(&self) -> bool {
        !self.0.of_registers
    }

    /// Whether the value depends on nothing but what [`machine::Passed`] keeps: general registers, and where a
    /// function is entered its first arguments.
    #[must_use]
    pub fn is_of_registers(&self) -> bool {
        self.0.code.is_of_registers() && self.arguments() <= PASSED_ARGUMENTS_MAX
    }

    /// Whether the value is not zero.
    pub fn holds<M: Memory + ?Sized>(&self, memory: &M, inputs: &Inputs<'_>) -> Result<bool, Trouble> {
        Ok(self.value(memory, inputs)? != 0)
    }

    /// The value for a person: text for strings and formats, names for enumerators, `0x…` for pointers; a
    /// comparison shows both sides.
    pub fn text<M: Memory + ?Sized>(&self, memory: &M, inputs: &Inputs<'_>) -> Result<String, Trouble> {
        format::render(&self.0.text, &self.machine(memory, inputs))
    }

    fn machine<'m, M: ?Sized>(&'m self, memory: &'m M, inputs: &'m Inputs<'m>) -> Machine<'m, M> {
        Machine { architecture: self.0.architecture, memory, inputs, homes: &self.0.homes }
    }

    /// The struct that the value points to or is, by name: what a heap object of this expression is.
    #[must_use]
    pub fn points_to(&self) -> Option<crate::elf::types::TypeId> {
        self.0.points_to
    }

    /// The type, to bind a name of the same type elsewhere.
    #[must_use]
    pub fn ty(&self) -> &Ty {
        &self.0.ty
    }

    /// The variables it reads at addresses that never change, each with its size.
    #[must_use]
    pub fn variables(&self) -> Vec<(VirtAddr, u64)> {
        let mut found = Vec::new();
        self.0.code.each_load(&mut |at, size| found.push((VirtAddr(at), u64::from(size))));
        found
    }

    /// The constant, if the value depends on nothing.
    #[must_use]
    pub fn constant(&self) -> Option<u64> {
        match self.0.code {
            Code::Constant(value) => Some(value),
            _ => None,
        }
    }
}

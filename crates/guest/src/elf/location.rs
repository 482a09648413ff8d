//! DWARF location expressions, evaluated over registers and memory.
//!
//! Contract: the stack machine of DWARF 5, section 2.5, as far as compilers use it for locals and frames of C
//! code. An operation outside of that gives `None`, never a wrong place.

use crate::state::{Architecture, BP, BX, CX, DI, DX, Memory, Registers, SI, SP};
use gimli::{EvaluationResult, Location as Place};
use trace::VirtAddr;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    Memory(VirtAddr),
    Register(usize),
    /// The value itself; it lives nowhere.
    Value(u64),
}

/// The processor's number of a DWARF register.
#[must_use]
pub fn register_number(architecture: Architecture, dwarf: u16) -> Option<usize> {
    match architecture {
        Architecture::X86 => (dwarf < 8).then_some(usize::from(dwarf)),
        Architecture::X86_64 => match dwarf {
            0..=7 => Some([0, DX, CX, BX, SI, DI, BP, SP][usize::from(dwarf)]),
            8..=15 => Some(usize::from(dwarf)),
            _ => None,
        },
        Architecture::Riscv64 => (dwarf < 32).then_some(usize::from(dwarf)),
    }
}

/// What the expression may refer to beside registers and memory.
#[derive(Clone, Copy, Default)]
pub struct Surroundings<'a> {
    pub cfa: Option<u64>,
    /// The expression for `DW_OP_fbreg`.
    pub frame_base: Option<&'a [u8]>,
    /// A value the machine starts with (for register rules: the frame address).
    pub initial: Option<u64>,
}

/// How many requests are answered before an expression is given up; gimli bounds the operations between them.
const REQUESTS_MAX: usize = 64;

pub fn evaluate(
    expression: &[u8],
    architecture: Architecture,
    registers: &Registers,
    memory: &(impl Memory + ?Sized),
    around: Surroundings<'_>,
) -> Option<Home> {
    let word = architecture.word();
    let mask = if word == 4 { 0xffff_ffff } else { u64::MAX };
    let encoding = gimli::Encoding { address_size: word as u8, format: gimli::Format::Dwarf32, version: 5 };
    let slice = gimli::EndianSlice::new(expression, gimli::LittleEndian);
    let mut evaluation = gimli::Expression(slice).evaluation(encoding);
    evaluation.set_max_iterations(4096);
    if let Some(initial) = around.initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().ok()?;
    for _ in 0..REQUESTS_MAX {
        result = match result {
            EvaluationResult::Complete => {
                let pieces = evaluation.result();
                let [piece] = pieces.as_slice() else { return None };
                if piece.size_in_bits.is_some() {
                    return None;
                }
                return match piece.location {
                    Place::Address { address } => Some(Home::Memory(VirtAddr(address & mask))),
                    Place::Register { register } => {
                        register_number(architecture, register.0).map(Home::Register)
                    }
                    Place::Value { value } => value.to_u64(mask).ok().map(Home::Value),
                    _ => None,
                };
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let number = register_number(architecture, register.0)?;
                evaluation
                    .resume_with_register(gimli::Value::Generic(registers.general[number] & mask))
                    .ok()?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let value = memory.read_uint(VirtAddr(address & mask), usize::from(size))?;
                evaluation.resume_with_memory(gimli::Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                evaluation.resume_with_call_frame_cfa(around.cfa?).ok()?
            }
            EvaluationResult::RequiresFrameBase => {
                let inner = Surroundings { frame_base: None, ..around };
                let base = match evaluate(around.frame_base?, architecture, registers, memory, inner)? {
                    Home::Memory(addr) => addr.0,
                    Home::Register(number) => registers.general[number] & mask,
                    Home::Value(value) => value,
                };
                evaluation.resume_with_frame_base(base).ok()?
            }
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address).ok()?
            }
            _ => return None,
        };
    }
    None
}

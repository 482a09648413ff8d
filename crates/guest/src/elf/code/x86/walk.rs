//! Following code by what it does to the stack.
//!
//! Two ways to find the return address of a function without help from the compiler. *Running out* follows
//! the code from here to a `ret` or `iret`, with the real registers and memory. *Running in* follows it from
//! the function's entry to here, with symbols for the registers, for functions that never return. Either way
//! only the stack pointer and what is saved and restored are computed; both sides of a branch are tried,
//! since compiled code leaves the stack at the same height on every way to an instruction.
//!
//! Contract: bounded work, no assumption about what is in memory. 32-bit x86. Calls are skipped. They leave
//! the stack as it was, unless the function called is known and pops arguments (as one that returns a
//! structure does); called by a pointer, such a function misleads it.

use super::bitness;
use crate::elf::image::{Function, Image, Space};
use crate::stack::Activation;
use crate::state::{AX, BP, CX, DX, Memory, SP};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, RwLock};
use trace::VirtAddr;

/// How many instructions are followed for one frame.
const FOLLOWED_MAX: usize = 4096;
/// Bytes of the longest x86 instruction.
const INSTRUCTION_MAX: usize = 15;

/// A way through the rest of a function.
#[derive(Clone)]
struct Path {
    pc: u64,
    /// The general registers; `None`: the value is not known any more.
    registers: [Option<u64>; 8],
    /// What the path itself pushed, by address.
    pushed: Vec<(u64, Option<u64>)>,
}

impl Path {
    fn stack_pointer(&self) -> Option<u64> {
        self.registers[SP]
    }

    fn move_stack(&mut self, bytes: i64) {
        self.registers[SP] = self.registers[SP].map(|sp| sp.wrapping_add(bytes as u64) & 0xffff_ffff);
    }

    fn read<M: Memory + ?Sized>(&self, addr: u64, memory: &M) -> Option<u64> {
        let addr = addr & 0xffff_ffff;
        match self.pushed.iter().rev().find(|(own, _)| *own == addr) {
            Some((_, value)) => *value,
            None => memory.read_uint(VirtAddr(addr), 4),
        }
    }

    fn push(&mut self, value: Option<u64>) {
        self.move_stack(-4);
        if let Some(sp) = self.stack_pointer() {
            self.pushed.push((sp, value));
        }
    }

    fn pop<M: Memory + ?Sized>(&mut self, memory: &M) -> Option<u64> {
        let value = self.stack_pointer().and_then(|sp| self.read(sp, memory));
        self.move_stack(4);
        value
    }
}

/// The number of a 32-bit general register.
fn number(register: iced_x86::Register) -> Option<usize> {
    (register.is_gpr32()).then(|| register.number())
}

/// Follows the code to where it returns.
pub(crate) fn run_out<M: Memory + ?Sized>(
    space: &Space,
    frame: &Activation,
    memory: &M,
    sensible: &dyn Fn(&Activation) -> bool,
) -> Option<Activation> {
    let start = Path {
        pc: frame.registers.pc,
        registers: std::array::from_fn(|number| Some(frame.registers.general[number])),
        pushed: Vec::new(),
    };
    let mut waiting = vec![start];
    let mut seen = FxHashSet::default();
    let mut info = InstructionInfoFactory::new();
    let mut budget = FOLLOWED_MAX;
    while let Some(mut path) = waiting.pop() {
        while budget > 0 && seen.insert(path.pc) {
            budget -= 1;
            let Some(instruction) = decode(space, path.pc, memory) else { break };
            path.pc = instruction.next_ip32().into();
            match instruction.flow_control() {
                FlowControl::Return => {
                    if let Some(next) = returned(&path, &instruction, frame, memory).filter(sensible) {
                        return Some(next);
                    }
                    break;
                }
                FlowControl::UnconditionalBranch => path.pc = instruction.near_branch_target(),
                FlowControl::ConditionalBranch => {
                    waiting.push(Path { pc: instruction.near_branch_target(), ..path.clone() });
                }
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt => {
                    // A function that ends with a call ends there: the callee does not return.
                    if function_end(space, instruction.ip()) == Some(path.pc) {
                        break;
                    }
                    let image = space.image_at(VirtAddr(instruction.ip()));
                    path.move_stack(popped_by(image.map(Arc::as_ref), &instruction));
                    for clobbered in [AX, CX, DX] {
                        path.registers[clobbered] = None;
                    }
                }
                FlowControl::IndirectBranch | FlowControl::Exception | FlowControl::XbeginXabortXend => break,
                FlowControl::Next => execute(&mut path, &instruction, &mut info, memory),
            }
        }
    }
    None
}

/// Bytes of arguments that the function called takes off the stack.
fn popped_by(image: Option<&Image>, call: &Instruction) -> i64 {
    let (Some(image), FlowControl::Call) = (image, call.flow_control()) else { return 0 };
    i64::from(image.popped(VirtAddr(call.near_branch_target())))
}

fn function_end(space: &Space, pc: u64) -> Option<u64> {
    let image = space.image_at(VirtAddr(pc))?;
    Some(image.get(image.function_at(VirtAddr(pc))?).end.0)
}

fn decode<M: Memory + ?Sized>(space: &Space, pc: u64, memory: &M) -> Option<Instruction> {
    decode_in(space.image_at(VirtAddr(pc))?, pc, memory)
}

fn decode_in<M: Memory + ?Sized>(image: &Image, pc: u64, memory: &M) -> Option<Instruction> {
    // The file's code needs no page tables; memory only where the file has none.
    decode_file(image, pc).or_else(|| {
        let mut buffer = [0; INSTRUCTION_MAX];
        let mut readable = |length: &usize| memory.read(VirtAddr(pc), &mut buffer[..*length]).is_some();
        let length = (1..=INSTRUCTION_MAX).rev().find(&mut readable)?;
        decode_bytes(image, pc, &buffer[..length])
    })
}

fn decode_file(image: &Image, pc: u64) -> Option<Instruction> {
    let bytes = (1..=INSTRUCTION_MAX).rev().find_map(|length| image.bytes(VirtAddr(pc), length))?;
    decode_bytes(image, pc, bytes)
}

fn decode_bytes(image: &Image, pc: u64, bytes: &[u8]) -> Option<Instruction> {
    if !image.is_code(VirtAddr(pc)) {
        return None;
    }
    let instruction =
        Decoder::with_ip(bitness(image.architecture)?, bytes, pc, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

fn returned<M: Memory + ?Sized>(
    path: &Path,
    instruction: &Instruction,
    frame: &Activation,
    memory: &M,
) -> Option<Activation> {
    let sp = path.stack_pointer()?;
    let word = |index: u64| path.read(sp.wrapping_add(4 * index), memory);
    let mut next = frame.registers;
    for (number, value) in path.registers.iter().enumerate() {
        // A register that is not known is none of the caller's; zero ends a chain of frame pointers.
        next.general[number] = value.unwrap_or(0);
    }
    next.pc = word(0)?;
    let interrupt = matches!(instruction.mnemonic(), Mnemonic::Iret | Mnemonic::Iretd);
    if interrupt {
        let selector = word(1)?;
        next.flags = word(2)?;
        next.ring = (selector & 3) as u8;
        next.general[SP] = match (frame.registers.ring, next.ring) {
            (0, 3) => word(3)?,
            _ => sp.wrapping_add(12) & 0xffff_ffff,
        };
    } else {
        let extra = if instruction.op_count() > 0 { u64::from(instruction.immediate16()) } else { 0 };
        next.general[SP] = sp.wrapping_add(4 + extra) & 0xffff_ffff;
    }
    Some(Activation { registers: next, exact: interrupt })
}

/// What an instruction does to the stack pointer and to registers that may be restored later.
fn execute<M: Memory + ?Sized>(
    path: &mut Path,
    instruction: &Instruction,
    info: &mut InstructionInfoFactory,
    memory: &M,
) {
    let first = number(instruction.op0_register());
    match instruction.mnemonic() {
        Mnemonic::Push if instruction.stack_pointer_increment() == -4 => {
            let value = operand(path, instruction, 0, memory);
            path.push(value);
        }
        Mnemonic::Pop if instruction.stack_pointer_increment() == 4 => {
            let value = path.pop(memory);
            if let (OpKind::Register, Some(register)) = (instruction.op0_kind(), first) {
                path.registers[register] = value;
            }
        }
        Mnemonic::Pushad => {
            let before = path.registers;
            for value in before {
                path.push(value);
            }
        }
        Mnemonic::Popad => {
            for register in (0..8).rev() {
                let value = path.pop(memory);
                if register != SP {
                    path.registers[register] = value;
                }
            }
        }
        Mnemonic::Leave => {
            path.registers[SP] = path.registers[BP];
            path.registers[BP] = path.pop(memory);
        }
        Mnemonic::Mov if instruction.op0_kind() == OpKind::Register && first.is_some() => {
            let value = operand(path, instruction, 1, memory);
            if let Some(register) = first {
                path.registers[register] = value;
            }
        }
        Mnemonic::Lea if first.is_some() => {
            let value = effective_address(path, instruction);
            if let Some(register) = first {
                path.registers[register] = value;
            }
        }
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And
            if instruction.op0_kind() == OpKind::Register && first.is_some() =>
        {
            let (left, right) =
                (operand(path, instruction, 0, memory), operand(path, instruction, 1, memory));
            if let (Some(register), Some(left), Some(right)) = (first, left, right) {
                let value = match instruction.mnemonic() {
                    Mnemonic::Add => left.wrapping_add(right),
                    Mnemonic::Sub => left.wrapping_sub(right),
                    _ => left & right,
                };
                path.registers[register] = Some(value & 0xffff_ffff);
            } else if let Some(register) = first {
                path.registers[register] = None;
            }
        }
        _ => {
            let increment = instruction.stack_pointer_increment();
            if increment != 0 {
                path.move_stack(i64::from(increment));
                return;
            }
            for register in written(instruction, info) {
                path.registers[register] = None;
            }
        }
    }
}

fn effective_address(path: &Path, instruction: &Instruction) -> Option<u64> {
    let part = |register| match register {
        iced_x86::Register::None => Some(0),
        register => path.registers[number(register)?],
    };
    let base = part(instruction.memory_base())?;
    let index = part(instruction.memory_index())?;
    let scaled = index.wrapping_mul(u64::from(instruction.memory_index_scale()));
    Some(base.wrapping_add(scaled).wrapping_add(instruction.memory_displacement64()) & 0xffff_ffff)
}

fn operand<M: Memory + ?Sized>(
    path: &Path,
    instruction: &Instruction,
    index: u32,
    memory: &M,
) -> Option<u64> {
    match instruction.op_kind(index) {
        OpKind::Register => path.registers[number(instruction.op_register(index))?],
        OpKind::Memory => {
            // Segments other than the flat ones are none of our business.
            let segment = instruction.segment_prefix();
            if segment != iced_x86::Register::None || instruction.memory_size().size() != 4 {
                return None;
            }
            path.read(effective_address(path, instruction)?, memory)
        }
        kind => {
            let immediate = matches!(
                kind,
                OpKind::Immediate8
                    | OpKind::Immediate16
                    | OpKind::Immediate32
                    | OpKind::Immediate8to32
                    | OpKind::Immediate8to16
            );
            immediate.then(|| instruction.immediate(index) & 0xffff_ffff)
        }
    }
}

fn written(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Vec<usize> {
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = info.info(instruction).used_registers().iter().filter(|used| writes(used.access()));
    used.filter_map(|used| number(used.register().full_register32())).collect()
}

/// The value of a register while running in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Unknown,
    /// The value that this register held at the entry.
    Original(usize),
    /// The stack pointer at the entry plus this number.
    Entry(i64),
}

#[derive(Clone, Debug)]
struct Entered {
    pc: u64,
    registers: [Value; 8],
    /// Saved registers by their distance from the stack pointer at the entry.
    saved: Vec<(i64, usize)>,
}

/// Ways in that were found, by the function and where in it they lead: they depend on nothing but the file's
/// code, and the same few are asked for at every point.
#[derive(Default, Debug)]
pub(crate) struct WaysIn(RwLock<FxHashMap<(VirtAddr, u64), WayIn>>);

/// A way from the entry of a function to a place in it; `None`: there is none.
type WayIn = Option<Arc<Entered>>;

impl WaysIn {
    fn to(&self, way: (VirtAddr, u64), find: impl FnOnce() -> Option<Entered>) -> WayIn {
        let known = self.0.read().expect("no reader panics").get(&way).cloned();
        known.unwrap_or_else(|| {
            let found = find().map(Arc::new);
            self.0.write().expect("no writer panics").insert(way, found.clone());
            found
        })
    }
}

/// Follows the code from the entry of the function to where it stands.
pub(crate) fn run_in<M: Memory + ?Sized>(
    image: &Image,
    frame: &Activation,
    memory: &M,
) -> Option<Activation> {
    let function = image.get(image.function_at(frame.lookup())?);
    let pc = frame.registers.pc;
    let way = image.ways_in.to((function.start, pc), || way_in(image, function, pc))?;
    arrived(&way, frame, memory)
}

fn way_in(image: &Image, function: &Function, target: u64) -> Option<Entered> {
    let mut registers: [Value; 8] = std::array::from_fn(Value::Original);
    registers[SP] = Value::Entry(0);
    let mut waiting = vec![Entered { pc: function.start.0, registers, saved: Vec::new() }];
    let mut seen = FxHashSet::default();
    let mut info = InstructionInfoFactory::new();
    for _ in 0..FOLLOWED_MAX {
        let mut path = waiting.pop()?;
        if path.pc == target {
            return Some(path);
        }
        if !function.range().contains(&path.pc) || !seen.insert(path.pc) {
            continue;
        }
        let Some(instruction) = decode_file(image, path.pc) else { continue };
        path.pc = instruction.next_ip32().into();
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => path.pc = instruction.near_branch_target(),
            FlowControl::ConditionalBranch => {
                waiting.push(Entered { pc: instruction.near_branch_target(), ..path.clone() });
            }
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt => {
                path.move_stack(popped_by(Some(image), &instruction));
                for clobbered in [AX, CX, DX] {
                    path.registers[clobbered] = Value::Unknown;
                }
            }
            FlowControl::Next => enter(&mut path, &instruction, &mut info),
            _ => continue,
        }
        waiting.push(path);
    }
    None
}

fn enter(path: &mut Entered, instruction: &Instruction, info: &mut InstructionInfoFactory) {
    let first = number(instruction.op0_register()).filter(|_| instruction.op0_kind() == OpKind::Register);
    let second = number(instruction.op1_register()).filter(|_| instruction.op1_kind() == OpKind::Register);
    let increment = i64::from(instruction.stack_pointer_increment());
    let constant = instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory;
    match (instruction.mnemonic(), first) {
        (Mnemonic::Push, register) => {
            path.move_stack(increment);
            let value = register.map_or(Value::Unknown, |register| path.registers[register]);
            if let (Value::Original(register), Value::Entry(at)) = (value, path.registers[SP]) {
                path.saved.push((at, register));
            }
        }
        (Mnemonic::Mov, Some(register)) => {
            path.registers[register] = second.map_or(Value::Unknown, |second| path.registers[second]);
        }
        (Mnemonic::Lea, Some(register)) => {
            let base = number(instruction.memory_base()).map(|base| path.registers[base]);
            let plain = instruction.memory_index() == iced_x86::Register::None;
            path.registers[register] = match base {
                Some(Value::Entry(at)) if plain => {
                    Value::Entry(at + i64::from(instruction.memory_displacement32() as i32))
                }
                _ => Value::Unknown,
            };
        }
        (Mnemonic::Add | Mnemonic::Sub, Some(register)) if constant => {
            let amount = i64::from(instruction.immediate(1) as i32);
            let amount = if instruction.mnemonic() == Mnemonic::Add { amount } else { -amount };
            path.registers[register] = match path.registers[register] {
                Value::Entry(at) => Value::Entry(at + amount),
                _ => Value::Unknown,
            };
        }
        (Mnemonic::Leave, _) => {
            path.registers[SP] = path.registers[BP];
            path.registers[BP] = Value::Original(BP);
            path.move_stack(4);
        }
        (Mnemonic::Pop, Some(register)) => {
            let saved = path.saved.iter().rev().find(|(at, _)| path.registers[SP] == Value::Entry(*at));
            path.registers[register] = saved.map_or(Value::Unknown, |(_, own)| Value::Original(*own));
            path.move_stack(increment);
        }
        _ => {
            for register in written(instruction, info) {
                if register != SP || increment == 0 {
                    path.registers[register] = Value::Unknown;
                }
            }
            path.move_stack(increment);
        }
    }
}

impl Entered {
    fn move_stack(&mut self, bytes: i64) {
        if let Value::Entry(at) = &mut self.registers[SP] {
            *at += bytes;
        }
    }
}

fn arrived<M: Memory + ?Sized>(path: &Entered, frame: &Activation, memory: &M) -> Option<Activation> {
    let entry = [SP, BP].into_iter().find_map(|register| match path.registers[register] {
        Value::Entry(at) => Some(frame.registers.general[register].wrapping_sub(at as u64) & 0xffff_ffff),
        _ => None,
    })?;
    let mut next = frame.registers;
    next.pc = memory.read_uint(VirtAddr(entry), 4)?;
    for register in 0..8 {
        let saved = path.saved.iter().find(|(_, own)| *own == register);
        next.general[register] = match (path.registers[register], saved) {
            (Value::Original(own), _) if own == register => frame.registers.general[register],
            (_, Some((at, _))) => {
                memory.read_uint(VirtAddr(entry.wrapping_add(*at as u64) & 0xffff_ffff), 4).unwrap_or(0)
            }
            _ => 0,
        };
    }
    next.general[SP] = entry.wrapping_add(4) & 0xffff_ffff;
    Some(Activation { registers: next, exact: false })
}

//! The x87 unit: a stack of eight 80-bit registers.
//!
//! An instruction first reports an exception left pending by an earlier one, then does everything that can
//! fault, then computes with [`super::softfloat`], raises its own exceptions, and only then changes
//! registers. Masked exceptions give the documented default results; unmasked ones leave the operands in
//! place and are reported by the next waiting instruction, as vector 16 if CR0.NE is set. With NE clear a PC
//! would raise IRQ 13 instead, which no guest we know of relies on: that stops as unsupported.
//!
//! What an unmasked exception leaves behind is not the same in the manual and in the processors this was
//! compared with: comparisons set their condition codes all the same, and a denormal operand is loaded. We
//! follow the processors.
//!
//! Source: Intel's manual, volume 1 chapter 8 and volume 2. Saving and restoring is in
//! [`super::x87_environment`], what works on exponents in [`super::x87_exponent`], the functions that no two
//! processors compute alike in [`super::x87_transcendental`].

use super::exec::Exec;
use super::flags;
use super::softfloat::{
    Class, Context, DOUBLE, Direction, EXTENDED, Rounded, SINGLE, Unit, Value, compare, raise,
};
use super::state::{F80, Fpu, cr0};
use super::trap::{Outcome, Trap};
use super::x87_store::{store, store_decimal, store_integer};
use super::{x87_environment, x87_exponent, x87_transcendental};
use iced_x86::{Instruction, MemorySize, Mnemonic, OpKind, Register};
use std::cmp::Ordering;

/// Bits of the status word.
pub(crate) mod status {
    pub const STACK_FAULT: u16 = 0x40;
    pub const SUMMARY: u16 = 0x80;
    pub const C0: u16 = 0x100;
    pub const C1: u16 = 0x200;
    pub const C2: u16 = 0x400;
    pub const C3: u16 = 0x4000;
    pub const BUSY: u16 = 0x8000;
    pub const TOP_SHIFT: u16 = 11;
}
use status::{C0, C1, C2, C3, STACK_FAULT};

pub(super) const INVALID: u16 = raise::INVALID as u16;
pub(super) const STACK_INVALID: u16 = INVALID | STACK_FAULT;

impl Fpu {
    /// Number of the physical register that is ST(0).
    #[must_use]
    pub fn top(&self) -> usize {
        (self.status >> status::TOP_SHIFT & 7) as usize
    }
    pub(crate) fn set_top(&mut self, top: usize) {
        self.status = self.status & !(7 << status::TOP_SHIFT) | (top as u16 & 7) << status::TOP_SHIFT;
    }
    fn physical(&self, i: usize) -> usize {
        (self.top() + i) & 7
    }
    pub(crate) fn is_empty(&self, i: usize) -> bool {
        self.tags >> self.physical(i) & 1 == 0
    }
    pub(crate) fn get(&self, i: usize) -> F80 {
        self.st[self.physical(i)]
    }
    pub(crate) fn value(&self, i: usize) -> Value {
        Value::unpack_extended(self.get(i))
    }
    pub(crate) fn set(&mut self, i: usize, value: F80) {
        let physical = self.physical(i);
        self.st[physical] = value;
        self.tags |= 1 << physical;
    }
    pub(crate) fn push(&mut self, value: F80) {
        self.set_top(self.top().wrapping_sub(1));
        self.set(0, value);
    }
    pub(crate) fn pop(&mut self) {
        self.tags &= !(1 << self.top());
        self.set_top(self.top() + 1);
    }
    pub(crate) fn codes(&mut self, mask: u16, codes: u16) {
        self.status = self.status & !mask | codes;
    }
    /// Sets the flags; true if one of them is unmasked.
    pub(crate) fn signal(&mut self, raised: u16) -> bool {
        self.status |= raised & 0x7f;
        let unmasked = raised & !self.control & 0x3f != 0;
        if unmasked {
            self.status |= status::SUMMARY | status::BUSY;
        }
        unmasked
    }
    /// Brings the summary bits in line with flags and masks.
    pub(crate) fn summarize(&mut self) {
        let pending = self.status & !self.control & 0x3f != 0;
        let bits = if pending { status::SUMMARY | status::BUSY } else { 0 };
        self.status = self.status & !(status::SUMMARY | status::BUSY) | bits;
    }
    pub(super) fn masks(&self, raised: u16) -> bool {
        self.control & raised & 0x3f == raised & 0x3f
    }

    /// Full precision, the control word's direction and masks.
    pub(crate) fn full_context(&self) -> Context {
        Context {
            unit: Unit::X87,
            direction: Direction::from_bits(u32::from(self.control >> 10)),
            precision: EXTENDED.precision,
            exponent_max: EXTENDED.exponent_max,
            masked: self.control as u8 & 0x3f,
            flush: false,
        }
    }

    /// With the control word's precision as well, which governs add, subtract, multiply, divide and square
    /// root.
    pub(super) fn context(&self) -> Context {
        let precision = match self.control >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        };
        Context { precision, ..self.full_context() }
    }

    /// Reports an empty operand. True if the default NaN is to be used, false if nothing more happens.
    pub(crate) fn underflow(&mut self) -> bool {
        self.codes(C1, 0);
        !self.signal(STACK_INVALID)
    }

    /// Pushes a result, or the default NaN onto a full stack.
    fn push_checked(&mut self, result: Rounded) {
        if !self.is_empty(7) {
            self.codes(C1, C1);
            if !self.signal(STACK_INVALID) {
                self.push(Value::DEFAULT_NAN.pack_extended());
            }
            return;
        }
        self.codes(C1, if result.up { C1 } else { 0 });
        self.signal(result.flags.into());
        if result.flags & raise::INVALID == 0 || self.masks(INVALID) {
            self.push(result.value.pack_extended());
        }
    }

    /// Puts a result into ST(i). False if it was suppressed.
    pub(crate) fn finish(&mut self, i: usize, result: Rounded) -> bool {
        self.codes(C1, if result.up { C1 } else { 0 });
        self.signal(result.flags.into());
        if self.full_context().suppresses(result.flags) {
            return false;
        }
        self.set(i, result.value.pack_extended());
        true
    }
}

/// Reports what an earlier instruction left pending, as waiting instructions (and MMX) do first.
pub(crate) fn check_pending(x: &Exec) -> Outcome<()> {
    if x.cpu.fpu.status & status::SUMMARY == 0 {
        Ok(())
    } else if x.cpu.cr0 & cr0::NE != 0 {
        Err(Trap::MF)
    } else {
        Err(Trap::Unsupported("x87 error reported through IRQ 13 (CR0.NE is clear)"))
    }
}

/// Executes one x87 instruction. CR0.EM and CR0.TS have been checked.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Fninit => {
            x87_environment::initialize(&mut x.cpu.fpu);
            return Ok(());
        }
        M::Fnclex => {
            x.cpu.fpu.status &= !(0x7f | status::SUMMARY | status::BUSY);
            return Ok(());
        }
        M::Fnstcw => return x.write(instr, 0, x.cpu.fpu.control.into()),
        M::Fnstsw => return x.write(instr, 0, x.cpu.fpu.status.into()),
        M::Fnstenv => return x87_environment::store_environment(x, instr),
        M::Fnsave => return x87_environment::save(x, instr),
        M::Fneni | M::Fndisi | M::Fnsetpm | M::Frstpm | M::Fstdw | M::Fstsg => return Ok(()),
        _ => check_pending(x)?,
    }
    match instr.mnemonic() {
        M::Wait => return Ok(()),
        M::Fnop => {
            remember(x, instr);
            return Ok(());
        }
        M::Fldcw => {
            let control = x.read(instr, 0)? as u16;
            x.cpu.fpu.control = control & 0x1f7f | 0x40;
            x.cpu.fpu.summarize();
            return Ok(());
        }
        M::Fldenv => return x87_environment::load_environment(x, instr),
        M::Frstor => return x87_environment::restore(x, instr),
        _ => {}
    }
    let before = x.cpu.fpu.status & status::SUMMARY;
    compute(x, instr)?;
    remember(x, instr);
    if x.cpu.fpu.status & status::SUMMARY > before {
        x.cpu.fpu.opcode = opcode(x);
    }
    Ok(())
}

/// Where the last instruction and its operand were, for handlers of x87 errors.
fn remember(x: &mut Exec, instr: &Instruction) {
    let (rip, cs) = (x.cpu.rip, x.cpu.segments[1].selector);
    let memory = (0..instr.op_count()).any(|i| instr.op_kind(i) == OpKind::Memory);
    let operand = memory.then(|| x.address(instr));
    let selector = operand.map(|(seg, _)| x.cpu.seg(seg).selector);
    let fpu = &mut x.cpu.fpu;
    (fpu.instruction_pointer, fpu.instruction_selector) = (rip, cs);
    if let (Some((_, offset)), Some(selector)) = (operand, selector) {
        (fpu.data_pointer, fpu.data_selector) = (offset, selector);
    }
}

/// The eleven opcode bits, read back from memory behind the prefixes. Recent processors keep them only for
/// unmasked exceptions; so do we.
fn opcode(x: &mut Exec) -> u16 {
    let pc = x.pc();
    let user = x.cpu.cpl() == 3;
    let mut byte = |i: u64| x.load_linear(x.linear_after(pc, i), 1, user).unwrap_or(0) as u16;
    let mut i = 0;
    while i < 15 && byte(i) & 0xf8 != 0xd8 {
        i += 1;
    }
    (byte(i) & 7) << 8 | byte(i + 1)
}

/// Index of ST(i) in operand `i`.
pub(super) fn stack_index(instr: &Instruction, i: u32) -> usize {
    instr.op_register(i) as usize - Register::ST0 as usize
}

/// The memory operand as a number.
fn load_value(x: &mut Exec, instr: &Instruction) -> Outcome<Value> {
    Ok(match instr.memory_size() {
        MemorySize::Float32 => Value::unpack(x.read(instr, 0)?, SINGLE),
        MemorySize::Float64 => Value::unpack(x.read(instr, 0)?, DOUBLE),
        MemorySize::Float80 => Value::unpack_extended(load_extended(x, instr)?),
        MemorySize::Int16 => Value::integer(x.read(instr, 0)? as i16 as i64),
        MemorySize::Int32 => Value::integer(x.read(instr, 0)? as i32 as i64),
        _ => Value::integer(x.read(instr, 0)? as i64),
    })
}

fn load_ten(x: &mut Exec, instr: &Instruction) -> Outcome<[u8; 10]> {
    let (seg, offset) = x.address(instr);
    let mut bytes = [0; 10];
    let linear = x.linear(seg, offset, bytes.len(), false)?;
    x.check_alignment(linear, 8)?;
    x.load_bytes(seg, offset, &mut bytes)?;
    Ok(bytes)
}

fn load_extended(x: &mut Exec, instr: &Instruction) -> Outcome<F80> {
    let bytes = load_ten(x, instr)?;
    Ok(F80 {
        mantissa: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
        sign_exponent: u16::from_le_bytes([bytes[8], bytes[9]]),
    })
}

pub(super) fn extended_bytes(value: F80) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&value.mantissa.to_le_bytes());
    bytes[8..].copy_from_slice(&value.sign_exponent.to_le_bytes());
    bytes
}

type Binary = fn(&Context, Value, Value) -> Rounded;

fn compute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    let sub: Binary = Context::sub;
    let div: Binary = Context::div;
    let subr: Binary = |c, a, b| c.sub(b, a);
    let divr: Binary = |c, a, b| c.div(b, a);
    match instr.mnemonic() {
        M::Fld | M::Fild => load(x, instr),
        M::Fbld => load_decimal(x, instr),
        M::Fst => store(x, instr, false),
        M::Fstp => store(x, instr, true),
        M::Fist => store_integer(x, instr, false),
        M::Fistp => store_integer(x, instr, true),
        M::Fbstp => store_decimal(x, instr),
        M::Fadd | M::Fiadd => arithmetic(x, instr, Context::add, false),
        M::Faddp => arithmetic(x, instr, Context::add, true),
        M::Fmul | M::Fimul => arithmetic(x, instr, Context::mul, false),
        M::Fmulp => arithmetic(x, instr, Context::mul, true),
        M::Fsub | M::Fisub => arithmetic(x, instr, sub, false),
        M::Fsubp => arithmetic(x, instr, sub, true),
        M::Fsubr | M::Fisubr => arithmetic(x, instr, subr, false),
        M::Fsubrp => arithmetic(x, instr, subr, true),
        M::Fdiv | M::Fidiv => arithmetic(x, instr, div, false),
        M::Fdivp => arithmetic(x, instr, div, true),
        M::Fdivr | M::Fidivr => arithmetic(x, instr, divr, false),
        M::Fdivrp => arithmetic(x, instr, divr, true),
        M::Fcom | M::Ficom => compare_to_codes(x, instr, 0, true),
        M::Fcomp | M::Ficomp => compare_to_codes(x, instr, 1, true),
        M::Fcompp => compare_to_codes(x, instr, 2, true),
        M::Fucom => compare_to_codes(x, instr, 0, false),
        M::Fucomp => compare_to_codes(x, instr, 1, false),
        M::Fucompp => compare_to_codes(x, instr, 2, false),
        M::Fcomi => compare_to_flags(x, instr, false, true),
        M::Fcomip => compare_to_flags(x, instr, true, true),
        M::Fucomi => compare_to_flags(x, instr, false, false),
        M::Fucomip => compare_to_flags(x, instr, true, false),
        _ => {
            on_stack(x, instr)?;
            Ok(())
        }
    }
}

/// Instructions without memory operands.
fn on_stack(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    let fpu = &mut x.cpu.fpu;
    match instr.mnemonic() {
        M::Ftst => {
            let zero = (!fpu.is_empty(0)).then(|| (fpu.value(0), Value::zero(false)));
            compare_codes(fpu, zero, 0, true);
        }
        M::Fxam => examine(fpu),
        M::Fabs => sign(fpu, |s| s & 0x7fff),
        M::Fchs => sign(fpu, |s| s ^ 0x8000),
        M::Fsqrt => unary(fpu, |fpu, a| fpu.context().sqrt(a)),
        M::Frndint => unary(fpu, |fpu, a| round_to_integral(&fpu.full_context(), a)),
        M::Fscale => x87_exponent::scale(fpu),
        M::Fxtract => x87_exponent::extract(fpu),
        M::Fprem => x87_exponent::remainder(fpu, Direction::Zero),
        M::Fprem1 => x87_exponent::remainder(fpu, Direction::Nearest),
        M::Fxch => exchange(fpu, stack_index(instr, 1)),
        M::Fcmovb => conditional(x, instr, |f| f.cf()),
        M::Fcmove => conditional(x, instr, |f| f.zf()),
        M::Fcmovbe => conditional(x, instr, |f| f.cf() || f.zf()),
        M::Fcmovu => conditional(x, instr, |f| f.pf()),
        M::Fcmovnb => conditional(x, instr, |f| !f.cf()),
        M::Fcmovne => conditional(x, instr, |f| !f.zf()),
        M::Fcmovnbe => conditional(x, instr, |f| !(f.cf() || f.zf())),
        M::Fcmovnu => conditional(x, instr, |f| !f.pf()),
        M::Fincstp => {
            fpu.set_top(fpu.top() + 1);
            fpu.codes(C1, 0);
        }
        M::Fdecstp => {
            fpu.set_top(fpu.top().wrapping_sub(1));
            fpu.codes(C1, 0);
        }
        M::Ffree | M::Ffreep => {
            let physical = fpu.physical(stack_index(instr, 0));
            fpu.tags &= !(1 << physical);
            fpu.codes(C1, 0);
            if instr.mnemonic() == M::Ffreep {
                fpu.pop();
            }
        }
        // Undocumented: FSTP that leaves an empty register alone.
        M::Fstpnce => {
            if !fpu.is_empty(0) {
                let value = fpu.get(0);
                fpu.set(stack_index(instr, 0), value);
            }
            fpu.codes(C1, 0);
            fpu.pop();
        }
        M::Fld1 => constant(fpu, Value::integer(1), 0),
        M::Fldz => constant(fpu, Value::zero(false), 0),
        // Significands to 128 bits; what is rounded off decides by the control word's direction.
        M::Fldl2t => constant(fpu, Value::finite(false, 1, 0xd49a_784b_cd1b_8afe), 0x492b_f6ff_4daf_db4c),
        M::Fldl2e => constant(fpu, Value::finite(false, 0, 0xb8aa_3b29_5c17_f0bb), 0xbe87_fed0_691d_3e88),
        M::Fldpi => constant(fpu, Value::finite(false, 1, 0xc90f_daa2_2168_c234), 0xc4c6_628b_80dc_1cd1),
        M::Fldlg2 => constant(fpu, Value::finite(false, -2, 0x9a20_9a84_fbcf_f798), 0x8f89_59ac_0b7c_9178),
        M::Fldln2 => constant(fpu, Value::finite(false, -1, 0xb172_17f7_d1cf_79ab), 0xc9e3_b398_03f2_f6af),
        _ => return x87_transcendental::execute(x, instr.mnemonic()),
    }
    Ok(())
}

/// Pushes a constant; below its 64 bits come those in `below`. No exception but stack overflow.
fn constant(fpu: &mut Fpu, value: Value, below: u64) {
    let value = match value.class {
        Class::Finite => {
            let wide = u128::from(value.significand) << 64 | u128::from(below);
            fpu.full_context().round(false, value.exponent, wide).value
        }
        _ => value,
    };
    fpu.push_checked(Rounded::exact(value));
}

fn sign(fpu: &mut Fpu, change: impl Fn(u16) -> u16) {
    if fpu.is_empty(0) {
        if fpu.underflow() {
            fpu.set(0, Value::DEFAULT_NAN.pack_extended());
        }
        return;
    }
    let mut value = fpu.get(0);
    value.sign_exponent = change(value.sign_exponent);
    fpu.codes(C1, 0);
    fpu.set(0, value);
}

/// Replaces ST(0) by a function of it.
pub(crate) fn unary(fpu: &mut Fpu, f: impl Fn(&Fpu, Value) -> Rounded) {
    if fpu.is_empty(0) {
        if fpu.underflow() {
            fpu.set(0, Value::DEFAULT_NAN.pack_extended());
        }
        return;
    }
    let result = f(fpu, fpu.value(0));
    fpu.finish(0, result);
}

fn round_to_integral(context: &Context, a: Value) -> Rounded {
    let mut result = context.convert(a);
    if a.class != Class::Finite || context.suppresses(result.flags) || a.exponent >= 63 {
        return result;
    }
    let (magnitude, inexact, up) = context.integral(a);
    result.value = match magnitude {
        0 => Value::zero(a.negative),
        m => Value::finite(a.negative, 63, m as u64),
    };
    // However small the number was, what comes of it is not.
    result.flags = result.flags & !raise::UNDERFLOW | if inexact { raise::PRECISION } else { 0 };
    result.up = up;
    result
}

fn load(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if instr.op_kind(0) == OpKind::Register || instr.op_count() > 1 {
        let last = instr.op_count() - 1;
        let fpu = &mut x.cpu.fpu;
        let i = stack_index(instr, last);
        if fpu.is_empty(i) {
            if fpu.underflow() {
                fpu.push(Value::DEFAULT_NAN.pack_extended());
            }
        } else if !fpu.is_empty(7) {
            fpu.push_checked(Rounded::exact(Value::DEFAULT_NAN));
        } else {
            let value = fpu.get(i);
            fpu.codes(C1, 0);
            fpu.push(value);
        }
        return Ok(());
    }
    if instr.memory_size() == MemorySize::Float80 {
        let value = load_extended(x, instr)?;
        let fpu = &mut x.cpu.fpu;
        if fpu.is_empty(7) {
            fpu.codes(C1, 0);
            fpu.push(value);
        } else {
            fpu.push_checked(Rounded::exact(Value::DEFAULT_NAN));
        }
        return Ok(());
    }
    let value = load_value(x, instr)?;
    // A denormal is reported, but loaded all the same.
    let mut context = x.cpu.fpu.full_context();
    context.masked |= raise::DENORMAL;
    x.cpu.fpu.push_checked(context.convert(value));
    Ok(())
}

/// Eighteen packed decimal digits and a sign.
fn load_decimal(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let bytes = load_ten(x, instr)?;
    let magnitude =
        bytes[..9].iter().rev().fold(0u64, |n, b| n * 100 + u64::from(b >> 4) * 10 + u64::from(b & 15));
    let mut value = Value::integer(magnitude as i64);
    value.negative = bytes[9] & 0x80 != 0;
    x.cpu.fpu.push_checked(Rounded::exact(value));
    Ok(())
}

fn arithmetic(x: &mut Exec, instr: &Instruction, op: Binary, pop: bool) -> Outcome<()> {
    let (dest, source) = if instr.op_kind(0) == OpKind::Memory {
        (0, Err(load_value(x, instr)?))
    } else {
        (stack_index(instr, 0), Ok(stack_index(instr, 1)))
    };
    let fpu = &mut x.cpu.fpu;
    if fpu.is_empty(dest) || source.is_ok_and(|i| fpu.is_empty(i)) {
        if fpu.underflow() {
            fpu.set(dest, Value::DEFAULT_NAN.pack_extended());
            if pop {
                fpu.pop();
            }
        }
        return Ok(());
    }
    let b = match source {
        Ok(i) => fpu.value(i),
        Err(value) => value,
    };
    let result = op(&fpu.context(), fpu.value(dest), b);
    if fpu.finish(dest, result) && pop {
        fpu.pop();
    }
    Ok(())
}

/// Compares; the flags that are raised, and the order.
fn ordered(a: Value, b: Value, quiet_is_invalid: bool) -> (u16, Option<Ordering>) {
    let bad = |v: Value| match v.class {
        Class::Signaling | Class::Nonsense => true,
        Class::Quiet => quiet_is_invalid,
        _ => false,
    };
    if bad(a) || bad(b) {
        return (INVALID, None);
    }
    let order = compare(a, b);
    let denormal = order.is_some() && (a.denormal || b.denormal);
    (if denormal { raise::DENORMAL.into() } else { 0 }, order)
}

/// Sets the condition codes and pops; `None` stands for an empty operand.
fn compare_codes(fpu: &mut Fpu, operands: Option<(Value, Value)>, pops: usize, quiet_is_invalid: bool) {
    let (raised, order) = match operands {
        Some((a, b)) => ordered(a, b, quiet_is_invalid),
        None => (STACK_INVALID, None),
    };
    fpu.codes(C1, 0);
    let unmasked = fpu.signal(raised);
    let codes = match order {
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => C0,
        Some(Ordering::Equal) => C3,
        None => C0 | C2 | C3,
    };
    fpu.codes(C0 | C2 | C3, codes);
    for _ in 0..if unmasked { 0 } else { pops } {
        fpu.pop();
    }
}

/// ST(0) and the other operand; `None` if one is empty.
fn comparands(x: &mut Exec, instr: &Instruction) -> Outcome<Option<(Value, Value)>> {
    let memory = instr.op_kind(0) == OpKind::Memory;
    let loaded = if memory { Some(load_value(x, instr)?) } else { None };
    let fpu = &x.cpu.fpu;
    let other = match loaded {
        Some(value) => Some(value),
        None => {
            let i = if instr.op_count() == 0 { 1 } else { stack_index(instr, instr.op_count() - 1) };
            (!fpu.is_empty(i)).then(|| fpu.value(i))
        }
    };
    Ok(other.filter(|_| !fpu.is_empty(0)).map(|b| (fpu.value(0), b)))
}

fn compare_to_codes(x: &mut Exec, instr: &Instruction, pops: usize, quiet_is_invalid: bool) -> Outcome<()> {
    let operands = comparands(x, instr)?;
    compare_codes(&mut x.cpu.fpu, operands, pops, quiet_is_invalid);
    Ok(())
}

fn compare_to_flags(x: &mut Exec, instr: &Instruction, pop: bool, quiet_is_invalid: bool) -> Outcome<()> {
    let (raised, order) = match comparands(x, instr)? {
        Some((a, b)) => ordered(a, b, quiet_is_invalid),
        None => (STACK_INVALID, None),
    };
    x.cpu.fpu.codes(C1, 0);
    let unmasked = x.cpu.fpu.signal(raised);
    let image = match order {
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => flags::CF,
        Some(Ordering::Equal) => flags::ZF,
        None => flags::CF | flags::PF | flags::ZF,
    };
    x.cpu.flags.set_arithmetic(image);
    if pop && !unmasked {
        x.cpu.fpu.pop();
    }
    Ok(())
}

fn examine(fpu: &mut Fpu) {
    let bits = fpu.get(0);
    let codes = if fpu.is_empty(0) {
        C3 | C0
    } else {
        let value = Value::unpack_extended(bits);
        match value.class {
            Class::Nonsense => 0,
            Class::Quiet | Class::Signaling => C0,
            Class::Finite if value.denormal => C3 | C2,
            Class::Finite => C2,
            Class::Infinity => C2 | C0,
            Class::Zero => C3,
        }
    };
    let sign = if bits.sign_exponent >> 15 != 0 { C1 } else { 0 };
    fpu.codes(C0 | C1 | C2 | C3, codes | sign);
}

fn exchange(fpu: &mut Fpu, i: usize) {
    if fpu.is_empty(0) || fpu.is_empty(i) {
        if !fpu.underflow() {
            return;
        }
        for i in [0, i] {
            if fpu.is_empty(i) {
                fpu.set(i, Value::DEFAULT_NAN.pack_extended());
            }
        }
    }
    let (a, b) = (fpu.get(0), fpu.get(i));
    fpu.codes(C1, 0);
    fpu.set(0, b);
    fpu.set(i, a);
}

fn conditional(x: &mut Exec, instr: &Instruction, holds: impl Fn(&flags::Flags) -> bool) {
    let i = stack_index(instr, 1);
    let taken = holds(&x.cpu.flags);
    let fpu = &mut x.cpu.fpu;
    if fpu.is_empty(0) || fpu.is_empty(i) {
        if fpu.underflow() {
            fpu.set(0, Value::DEFAULT_NAN.pack_extended());
        }
        return;
    }
    if taken {
        let value = fpu.get(i);
        fpu.set(0, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_a_denormal_to_an_integer_is_no_underflow() {
        // Underflow and precision are not masked.
        let fpu = Fpu { control: 0x43, ..Fpu::default() };
        let denormal = Value::unpack_extended(F80 { mantissa: 1, sign_exponent: 0 });
        let rounded = round_to_integral(&fpu.full_context(), denormal);
        assert_eq!((rounded.value.class, rounded.flags), (Class::Zero, raise::DENORMAL | raise::PRECISION));
    }
}

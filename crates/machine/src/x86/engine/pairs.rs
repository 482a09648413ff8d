//! Two operations in one dispatch.
//!
//! Where frequent operations stand side by side in a block, the first one's handler is replaced by one that does its
//! work and goes straight to the second one's handler. The host then has a jump with one target instead of one with
//! many, which in code that runs seldom is mispredicted nearly every time. Nothing else changes: both operations keep
//! their slots, so whatever goes wrong in either is retried as before.

use super::control::{call_direct, call_far, fused_ri, fused_rr, jump_direct, ret, retry};
use super::handlers::*;
use super::op::{Frame, Handler, Op, State};
use crate::x86::mmu::Tlb;
use std::sync::LazyLock;

/// An operation that can be the first of a pair. False: it could not be done at once, and nothing has changed.
trait First {
    const HANDLER: Handler;
    unsafe fn run(s: &mut State) -> bool;
}

/// An operation that can be the second of a pair.
trait Second {
    const HANDLER: Handler;
}

unsafe extern "C" fn pair<A: First, B: Second>(
    f: *mut Frame,
    op: *const Op,
    log: *mut u64,
    r: u64,
    c: u64,
    t: *const Tlb,
) {
    let mut s = State { f, op, log, r, c, t };
    // SAFETY: as for all handlers; the operation after the first one of a pair is the second.
    unsafe {
        if !A::run(&mut s) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        (B::HANDLER)(s.f, s.op.add(1), s.log, s.r, s.c, s.t)
    }
}

macro_rules! firsts {
    ($($name:ident = $handler:expr, |$s:ident| $body:block)*) => {
        $(
            struct $name;
            impl First for $name {
                const HANDLER: Handler = $handler;
                #[inline(always)]
                unsafe fn run($s: &mut State) -> bool {
                    // SAFETY: called by `pair` with the operation this is the body of.
                    unsafe { $body }
                }
            }
            impl Second for $name {
                const HANDLER: Handler = $handler;
            }
        )*
    };
}

macro_rules! seconds {
    ($($name:ident = $handler:expr;)*) => {
        $(
            struct $name;
            impl Second for $name {
                const HANDLER: Handler = $handler;
            }
        )*
    };
}

firsts! {
    Load = load::<4, 0>, |s| {
        let address = s.address::<0>();
        let (hit, at) = s.readable::<4>(address);
        if hit {
            s.log(address);
            s.set::<4>(s.o().a, State::load::<4>(at));
        }
        hit
    }
    LoadByte = load_extend::<1, false, 0>, |s| {
        let address = s.address::<0>();
        let (hit, at) = s.readable::<1>(address);
        if hit {
            s.log(address);
            s.set::<4>(s.o().a, State::load::<1>(at));
        }
        hit
    }
    Store = store::<4, 0>, |s| {
        let address = s.address::<0>();
        let (hit, at) = s.writable::<4>(address);
        if hit {
            s.log(address);
            State::store::<4>(at, s.get::<4>(s.o().a));
        }
        hit
    }
    Push = push_r, |s| {
        let value = s.get::<4>(s.o().a);
        let address = s.get::<4>(32).wrapping_sub(4);
        let (hit, at) = s.writable::<4>(address);
        if hit {
            s.log(address);
            State::store::<4>(at, value);
            s.set::<4>(32, address);
        }
        hit
    }
    Pop = pop_r, |s| {
        let address = s.get::<4>(32);
        let (hit, at) = s.readable::<4>(address);
        if hit {
            s.log(address);
            s.set::<4>(32, address.wrapping_add(4));
            s.set::<4>(s.o().a, State::load::<4>(at));
        }
        hit
    }
    Move = mov_rr::<4>, |s| {
        s.set::<4>(s.o().a, s.get::<4>(s.o().b));
        true
    }
    Constant = mov_ri::<4>, |s| {
        s.set::<4>(s.o().a, s.o().imm);
        true
    }
    Lea = lea::<0>, |s| {
        s.set::<4>(s.o().a, s.address::<0>());
        true
    }
    LeaIndex = lea::<1>, |s| {
        s.set::<4>(s.o().a, s.address::<1>());
        true
    }
    Add = alu_rr_silent::<ADD>, |s| {
        let (a, b) = (s.o().a, s.o().b);
        s.set::<4>(a, s.get::<4>(a).wrapping_add(s.get::<4>(b)));
        true
    }
    AddConstant = alu_ri_silent::<ADD>, |s| {
        let (a, imm) = (s.o().a, s.o().imm);
        s.set::<4>(a, s.get::<4>(a).wrapping_add(imm));
        true
    }
    And = alu_rr_silent::<AND>, |s| {
        let (a, b) = (s.o().a, s.o().b);
        s.set::<4>(a, s.get::<4>(a) & s.get::<4>(b));
        true
    }
    AndConstant = alu_ri_silent::<AND>, |s| {
        let (a, imm) = (s.o().a, s.o().imm);
        s.set::<4>(a, s.get::<4>(a) & imm);
        true
    }
    Xor = alu_rr_silent::<XOR>, |s| {
        let (a, b) = (s.o().a, s.o().b);
        s.set::<4>(a, s.get::<4>(a) ^ s.get::<4>(b));
        true
    }
    Right = shift_ri_silent::<5>, |s| {
        let (a, n) = (s.o().a, s.o().imm);
        s.set::<4>(a, s.get::<4>(a) >> n);
        true
    }
    AddFlags = alu_rr::<ADD, 4>, |s| {
        let (a, b) = (s.o().a, s.o().b);
        let result = compute::<ADD, 4>(s.get::<4>(a), s.get::<4>(b), s);
        s.set::<4>(a, result);
        true
    }
    AndFlags = alu_rr::<AND, 4>, |s| {
        let (a, b) = (s.o().a, s.o().b);
        let result = compute::<AND, 4>(s.get::<4>(a), s.get::<4>(b), s);
        s.set::<4>(a, result);
        true
    }
    AddConstantFlags = alu_ri::<ADD, 4>, |s| {
        let (a, imm) = (s.o().a, s.o().imm);
        let result = compute::<ADD, 4>(s.get::<4>(a), imm, s);
        s.set::<4>(a, result);
        true
    }
}

seconds! {
    Return = ret;
    Jump = jump_direct;
    Call = call_direct;
    CallFar = call_far;
    Equal = fused_rr::<CMP, 4, 4>;
    NotEqual = fused_rr::<CMP, 4, 5>;
    EqualConstant = fused_ri::<CMP, 4, 4>;
    NotEqualConstant = fused_ri::<CMP, 4, 5>;
    Zero = fused_rr::<TEST, 4, 4>;
    NotZero = fused_rr::<TEST, 4, 5>;
    Left = shift_ri_silent::<4>;
    OrAny = alu_rr_silent::<OR>;
    Subtract = alu_rr_silent::<SUB>;
    Clear = clear;
}

macro_rules! table {
    ([$($a:ident)*] $seconds:tt) => {
        &[$((<$a as First>::HANDLER, table!(@row $a $seconds))),*]
    };
    (@row $a:ident [$($b:ident)*]) => {
        &[$((<$b as Second>::HANDLER, pair::<$a, $b> as Handler)),*]
    };
}

type Row = &'static [(Handler, Handler)];

/// For each first operation, its pairs with each second one.
static PAIRS: &[(Handler, Row)] = table!(
    [Load LoadByte Store Push Pop Move Constant Lea LeaIndex Add AddConstant And AndConstant Xor Right AddFlags
        AndFlags AddConstantFlags]
    [Load LoadByte Store Push Pop Move Constant Lea LeaIndex Add AddConstant And AndConstant Xor Right AddFlags
        AndFlags AddConstantFlags Return Jump Call CallFar Equal NotEqual EqualConstant NotEqualConstant Zero
        NotZero Left OrAny Subtract Clear]
);

const SIZE: usize = 128;
const NEITHER: u8 = u8::MAX;

/// The numbers of handlers in [`PAIRS`], by address: open addressing, for it is asked for every operation made.
struct Numbers {
    slots: [(usize, u8, u8); SIZE],
}

impl Numbers {
    fn new() -> Self {
        let mut numbers = Self { slots: [(0, NEITHER, NEITHER); SIZE] };
        for (number, &(handler, row)) in PAIRS.iter().enumerate() {
            numbers.slot(handler).1 = number as u8;
            for (number, &(handler, _)) in row.iter().enumerate() {
                numbers.slot(handler).2 = number as u8;
            }
        }
        numbers
    }

    fn at(address: usize) -> usize {
        (address >> 4).wrapping_mul(0x9e37_79b1) >> 20
    }

    fn slot(&mut self, handler: Handler) -> &mut (usize, u8, u8) {
        let address = handler as usize;
        let mut at = Self::at(address) % SIZE;
        while self.slots[at].0 != 0 && self.slots[at].0 != address {
            at = (at + 1) % SIZE;
        }
        self.slots[at].0 = address;
        &mut self.slots[at]
    }

    /// As a first and as a second operation.
    fn of(&self, handler: Handler) -> (u8, u8) {
        let address = handler as usize;
        let mut at = Self::at(address) % SIZE;
        loop {
            match self.slots[at] {
                (found, first, second) if found == address => return (first, second),
                (0, ..) => return (NEITHER, NEITHER),
                _ => at = (at + 1) % SIZE,
            }
        }
    }
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(Numbers::new);

/// Finds the pairs in a row of operations, from the first on.
pub(super) struct Joiner {
    numbers: &'static Numbers,
    /// The place of the last operation and its number, if it can be the first of a pair.
    open: Option<(usize, u8)>,
}

impl Joiner {
    pub fn new() -> Self {
        Self { numbers: &NUMBERS, open: None }
    }

    /// The next operation, at `place`. Gives the place of an operation to replace, and by what.
    pub fn next(&mut self, place: usize, handler: Handler) -> Option<(usize, Handler)> {
        let (first, second) = self.numbers.of(handler);
        if second != NEITHER
            && let Some((at, number)) = self.open
            && at + 1 == place
        {
            self.open = None;
            return Some((at, PAIRS[number as usize].1[second as usize].1));
        }
        self.open = (first != NEITHER).then_some((place, first));
        None
    }
}

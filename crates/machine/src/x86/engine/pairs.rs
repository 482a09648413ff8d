//! Two operations in one dispatch.
//!
//! Where frequent operations stand side by side in a block, the first one's handler is replaced by one that
//! does its work and goes straight to the second one's handler. The host then has a jump with one target
//! instead of one with many, which in code that runs seldom is mispredicted nearly every time. Nothing else
//! changes: both operations keep their slots, so whatever goes wrong in either is retried as before.

use super::control::{call_direct, call_far, fused_ri, fused_rr, jump_direct, load_constant, ret, retry};
use super::handlers::*;
use super::op::{Frame, Handler, Op, State};
use crate::x86::mmu::Tlb;
use std::sync::LazyLock;

/// An operation that can be the first of a pair. False: it could not be done at once, and nothing has
/// changed.
trait First {
    const HANDLER: Handler;
    /// What to do if it could not be done.
    const OTHERWISE: Handler;
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
            return (A::OTHERWISE)(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        (B::HANDLER)(s.f, s.op.add(1), s.log, s.r, s.c, s.t)
    }
}

macro_rules! firsts {
    (@otherwise) => { retry };
    (@otherwise $otherwise:expr) => { $otherwise };
    ($($name:ident = $handler:expr $(; $otherwise:expr)?, |$s:ident| $body:block)*) => {
        $(
            struct $name;
            impl First for $name {
                const HANDLER: Handler = $handler;
                const OTHERWISE: Handler = firsts!(@otherwise $($otherwise)?);
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

macro_rules! table {
    ([$($a:ident)*] $seconds:tt) => {
        &[$((<$a as First>::HANDLER, table!(@row $a $seconds))),*]
    };
    (@row $a:ident [$($b:ident)*]) => {
        &[$((<$b as Second>::HANDLER, pair::<$a, $b> as Handler)),*]
    };
}

type Row = &'static [(Handler, Handler)];

// The bodies that several widths share.
impl State {
    #[inline(always)]
    unsafe fn try_load<const Z: usize, const F: u8>(&mut self) -> bool {
        // SAFETY: as for all methods of `State`.
        unsafe {
            let address = self.address::<F>();
            let (hit, at) = self.readable::<Z>(address);
            if hit {
                self.log::<F>(address);
                // A byte is extended with zeros.
                let to = self.o().a;
                if Z == 8 {
                    self.set::<8>(to, State::load::<Z>(at))
                } else {
                    self.set::<4>(to, State::load::<Z>(at))
                }
            }
            hit
        }
    }

    #[inline(always)]
    unsafe fn try_store<const Z: usize, const F: u8>(&mut self) -> bool {
        // SAFETY: as for all methods of `State`.
        unsafe {
            let address = self.address::<F>();
            let (hit, at) = self.writable::<Z>(address);
            if hit {
                self.log::<F>(address);
                State::store::<Z>(at, self.get::<Z>(self.o().a));
            }
            hit
        }
    }

    /// Arithmetic of the register in `a` with that in `b`, or with the immediate; the flags stay.
    #[inline(always)]
    unsafe fn silently<const K: u8, const Z: usize, const IMMEDIATE: bool>(&mut self) -> bool {
        let (r, c) = (self.r, self.c);
        // SAFETY: as for all methods of `State`.
        unsafe { self.arithmetic::<K, Z, IMMEDIATE>() };
        (self.r, self.c) = (r, c);
        true
    }

    #[inline(always)]
    unsafe fn arithmetic<const K: u8, const Z: usize, const IMMEDIATE: bool>(&mut self) -> bool {
        // SAFETY: as for all methods of `State`.
        unsafe {
            let a = self.o().a;
            let b = if IMMEDIATE { self.immediate::<Z>() } else { self.get::<Z>(self.o().b) };
            let result = compute::<K, Z>(self.get::<Z>(a), b, self);
            self.set::<Z>(a, result);
        }
        true
    }
}

firsts! {
    Load = load::<4, 0>; load_constant::<0>, |s| { s.try_load::<4, 0>() }
    LoadByte = load_extend::<1, false, 4, 0>, |s| { s.try_load::<1, 0>() }
    Store = store::<4, 0>, |s| { s.try_store::<4, 0>() }
    Push = push_r::<4>, |s| {
        let value = s.get::<4>(s.o().a);
        s.push::<4>(value)
    }
    Pop = pop_r::<4>, |s| { s.pop::<4>() }
    Move = mov_rr::<4>, |s| {
        s.set::<4>(s.o().a, s.get::<4>(s.o().b));
        true
    }
    Constant = mov_ri::<4>, |s| {
        s.set::<4>(s.o().a, s.immediate::<4>());
        true
    }
    Lea = lea::<4, 0>, |s| {
        s.set::<4>(s.o().a, s.address::<0>());
        true
    }
    LeaIndex = lea::<4, 1>, |s| {
        s.set::<4>(s.o().a, s.address::<1>());
        true
    }
    Add = alu_rr_silent::<ADD, 4>, |s| { s.silently::<ADD, 4, false>() }
    AddConstant = alu_ri_silent::<ADD, 4>, |s| { s.silently::<ADD, 4, true>() }
    And = alu_rr_silent::<AND, 4>, |s| { s.silently::<AND, 4, false>() }
    AndConstant = alu_ri_silent::<AND, 4>, |s| { s.silently::<AND, 4, true>() }
    Xor = alu_rr_silent::<XOR, 4>, |s| { s.silently::<XOR, 4, false>() }
    Right = shift_ri_silent::<5, 4>, |s| {
        let (a, n) = (s.o().a, s.o().imm);
        s.set::<4>(a, s.get::<4>(a) >> n);
        true
    }
    AddFlags = alu_rr::<ADD, 4>, |s| { s.arithmetic::<ADD, 4, false>() }
    AndFlags = alu_rr::<AND, 4>, |s| { s.arithmetic::<AND, 4, false>() }
    AddConstantFlags = alu_ri::<ADD, 4>, |s| { s.arithmetic::<ADD, 4, true>() }

    // Operations of 64-bit code, with addresses or operands of eight bytes.
    LongLoad = load::<8, 3>, |s| { s.try_load::<8, 3>() }
    LongLoadHalf = load::<4, 3>; load_constant::<3>, |s| { s.try_load::<4, 3>() }
    LongLoadByte = load_extend::<1, false, 4, 3>, |s| { s.try_load::<1, 3>() }
    LongStore = store::<8, 3>, |s| { s.try_store::<8, 3>() }
    LongStoreHalf = store::<4, 3>, |s| { s.try_store::<4, 3>() }
    LongPush = push_r::<8>, |s| {
        let value = s.get::<8>(s.o().a);
        s.push::<8>(value)
    }
    LongPop = pop_r::<8>, |s| { s.pop::<8>() }
    LongMove = mov_rr::<8>, |s| {
        s.set::<8>(s.o().a, s.get::<8>(s.o().b));
        true
    }
    LongLea = lea::<8, 3>, |s| {
        s.set::<8>(s.o().a, s.address::<3>());
        true
    }
    LongLeaIndex = lea::<8, 4>, |s| {
        s.set::<8>(s.o().a, s.address::<4>());
        true
    }
    LongAdd = alu_rr_silent::<ADD, 8>, |s| { s.silently::<ADD, 8, false>() }
    LongAddConstant = alu_ri_silent::<ADD, 8>, |s| { s.silently::<ADD, 8, true>() }
}

seconds! {
    Return = ret::<4>;
    Jump = jump_direct;
    Call = call_direct::<4>;
    CallFar = call_far::<4>;
    Equal = fused_rr::<CMP, 4, 4>;
    NotEqual = fused_rr::<CMP, 4, 5>;
    EqualConstant = fused_ri::<CMP, 4, 4>;
    NotEqualConstant = fused_ri::<CMP, 4, 5>;
    Zero = fused_rr::<TEST, 4, 4>;
    NotZero = fused_rr::<TEST, 4, 5>;
    Left = shift_ri_silent::<4, 4>;
    OrAny = alu_rr_silent::<OR, 4>;
    Subtract = alu_rr_silent::<SUB, 4>;
    Clear = clear;
    LongReturn = ret::<8>;
    LongCall = call_direct::<8>;
    LongCallFar = call_far::<8>;
    LongEqual = fused_rr::<CMP, 8, 4>;
    LongNotEqual = fused_rr::<CMP, 8, 5>;
    LongZero = fused_rr::<TEST, 8, 4>;
    LongNotZero = fused_rr::<TEST, 8, 5>;
    LongLeft = shift_ri_silent::<4, 8>;
    LongSubtract = alu_rr_silent::<SUB, 8>;
    LongAnd = alu_rr_silent::<AND, 8>;
}

/// For each first operation of 32-bit code, its pairs with each second one.
static PAIRS: &[(Handler, Row)] = table!(
    [Load LoadByte Store Push Pop Move Constant Lea LeaIndex Add AddConstant And AndConstant Xor Right AddFlags
        AndFlags AddConstantFlags]
    [Load LoadByte Store Push Pop Move Constant Lea LeaIndex Add AddConstant And AndConstant Xor Right AddFlags
        AndFlags AddConstantFlags Return Jump Call CallFar Equal NotEqual EqualConstant NotEqualConstant Zero
        NotZero Left OrAny Subtract Clear]
);

/// For each first operation of 64-bit code, its pairs with each second one.
static LONG_PAIRS: &[(Handler, Row)] = table!(
    [LongLoad LongLoadHalf LongLoadByte LongStore LongStoreHalf LongPush LongPop LongMove Move Constant LongLea
        LongLeaIndex LongAdd LongAddConstant AndConstant]
    [LongLoad LongLoadHalf LongLoadByte LongStore LongStoreHalf LongPush LongPop LongMove Move Constant LongLea
        LongLeaIndex LongAdd LongAddConstant AndConstant LongReturn Jump LongCall LongCallFar LongEqual
        LongNotEqual EqualConstant NotEqualConstant LongZero LongNotZero Zero NotZero LongLeft LongSubtract LongAnd
        Clear]
);

const SIZE: usize = 128;
const NEITHER: u8 = u8::MAX;

/// The numbers of handlers in a table of pairs, by address: open addressing, for it is asked for every
/// operation made.
struct Numbers {
    slots: [(usize, u8, u8); SIZE],
}

impl Numbers {
    fn new(pairs: &[(Handler, Row)]) -> Self {
        let mut numbers = Self { slots: [(0, NEITHER, NEITHER); SIZE] };
        for (number, &(handler, row)) in pairs.iter().enumerate() {
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

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::new(PAIRS));
static LONG_NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::new(LONG_PAIRS));

/// Finds the pairs in a row of operations, from the first on.
pub(super) struct Joiner {
    numbers: &'static Numbers,
    pairs: &'static [(Handler, Row)],
    /// The place of the last operation and its number, if it can be the first of a pair.
    open: Option<(usize, u8)>,
}

impl Joiner {
    pub fn new(long: bool) -> Self {
        let (numbers, pairs) = if long { (&*LONG_NUMBERS, LONG_PAIRS) } else { (&*NUMBERS, PAIRS) };
        Self { numbers, pairs, open: None }
    }

    /// The next operation, at `place`. Gives the place of an operation to replace, and by what.
    pub fn next(&mut self, place: usize, handler: Handler) -> Option<(usize, Handler)> {
        let (first, second) = self.numbers.of(handler);
        if second != NEITHER
            && let Some((at, number)) = self.open
            && at + 1 == place
        {
            self.open = None;
            return Some((at, self.pairs[number as usize].1[second as usize].1));
        }
        self.open = (first != NEITHER).then_some((place, first));
        None
    }
}

//! From numbers known when code is translated to the handlers made for them.
//!
//! Each macro runs its body with a constant in place of a value: `by_size!(size, |Z| load::<Z, F>)`.

use super::control::{fused_mi, fused_mr, fused_ri, fused_rm, fused_rr};
use super::handlers::{CMP, TEST};
use super::op::Handler;

macro_rules! by_constant {
    ($v:expr, |$K:ident: $type:ty| $body:expr, $($n:literal)* else $last:literal) => {
        match $v {
            $($n => {
                const $K: $type = $n;
                $body
            })*
            _ => {
                const $K: $type = $last;
                $body
            }
        }
    };
}

macro_rules! by_size {
    ($v:expr, |$Z:ident| $body:expr) => { by_constant!($v, |$Z: usize| $body, 1 2 4 else 8) };
}

/// The sizes of whole registers.
macro_rules! by_width {
    ($v:expr, |$Z:ident| $body:expr) => { by_constant!($v, |$Z: usize| $body, 8 else 4) };
}

/// Sizes that comparisons with memory are fused for.
macro_rules! by_compared {
    ($v:expr, |$Z:ident| $body:expr) => { by_constant!($v, |$Z: usize| $body, 1 4 else 8) };
}

macro_rules! by_number {
    ($v:expr, |$K:ident| $body:expr, $($n:literal)*) => {
        match $v {
            $($n => {
                const $K: u8 = $n;
                $body
            })*
            _ => unreachable!("no such variant"),
        }
    };
}

macro_rules! by_form {
    ($v:expr, |$F:ident| $body:expr) => { by_number!($v, |$F| $body, 0 1 2 3 4 5 6) };
}

macro_rules! by_kind {
    ($v:expr, |$K:ident| $body:expr) => { by_number!($v, |$K| $body, 0 1 2 3 4 5 6 7 8) };
}

macro_rules! by_condition {
    ($v:expr, |$CC:ident| $body:expr) => { by_number!($v, |$CC| $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
}

/// Conditions that a comparison decides without looking at parity or overflow alone.
macro_rules! by_fused_condition {
    ($v:expr, |$CC:ident| $body:expr) => { by_number!($v, |$CC| $body, 2 3 4 5 6 7 8 9 12 13 14 15) };
}

pub(super) use {
    by_condition, by_constant, by_form, by_fused_condition, by_kind, by_number, by_size, by_width,
};

pub(super) fn select_fused(immediate: bool, kind: u8, size: usize, cc: u8) -> Handler {
    macro_rules! pick {
        ($which:ident, $k:expr) => {
            by_size!(size, |Z| by_fused_condition!(cc, |CC| $which::<{ $k }, Z, CC> as Handler))
        };
    }
    match (immediate, kind) {
        (false, CMP) => pick!(fused_rr, CMP),
        (false, _) => pick!(fused_rr, TEST),
        (true, CMP) => pick!(fused_ri, CMP),
        (true, _) => pick!(fused_ri, TEST),
    }
}

pub(super) fn select_fused_mi(kind: u8, size: usize, form: u8, cc: u8) -> Handler {
    macro_rules! pick {
        ($k:expr) => {
            by_compared!(size, |Z| by_form!(form, |F| by_fused_condition!(
                cc,
                |CC| fused_mi::<{ $k }, Z, F, CC> as Handler
            )))
        };
    }
    if kind == CMP { pick!(CMP) } else { pick!(TEST) }
}

pub(super) fn select_fused_rm(size: usize, form: u8, cc: u8) -> Handler {
    by_compared!(size, |Z| by_form!(form, |F| by_fused_condition!(cc, |CC| fused_rm::<Z, F, CC> as Handler)))
}

pub(super) fn select_fused_mr(size: usize, form: u8, cc: u8) -> Handler {
    by_compared!(size, |Z| by_form!(form, |F| by_fused_condition!(cc, |CC| fused_mr::<Z, F, CC> as Handler)))
}

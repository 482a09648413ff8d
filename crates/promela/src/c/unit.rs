//! What one or several source files define, and what follows from that: types behind typedefs, constant
//! expressions.

use super::syntax::{Declaration, Expr, ExprKind, Function, Place, Type};
use std::collections::BTreeMap;

/// One translation unit.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    pub functions: BTreeMap<String, Function>,
    /// Parameters of functions, those that are only declared and those that are defined.
    pub signatures: BTreeMap<String, Vec<Type>>,
    pub globals: BTreeMap<String, Declaration>,
    pub structs: BTreeMap<String, Vec<(String, Type)>>,
    pub typedefs: BTreeMap<String, Type>,
    pub constants: BTreeMap<String, i64>,
    /// The places where the text is not C, each with the function it lies in; `None` outside of functions.
    pub errors: Vec<(Option<String>, Place)>,
    /// Bits of a pointer and of `long`.
    pub(super) word_bits: u8,
}

impl Unit {
    /// The type behind typedefs.
    #[must_use]
    pub fn resolve(&self, ty: &Type) -> Type {
        let mut ty = ty.clone();
        // A typedef of itself is no C, but a file may hold it.
        for _ in 0..32 {
            match &ty {
                Type::Named(name) => match self.typedefs.get(name) {
                    Some(known) => ty = known.clone(),
                    None => return Type::Other(name.clone()),
                },
                Type::Pointer(to) => return Type::Pointer(Box::new(self.resolve(to))),
                Type::Array(of, size) => return Type::Array(Box::new(self.resolve(of)), *size),
                _ => return ty,
            }
        }
        Type::Other("a type defined by itself".to_owned())
    }

    /// The value of a constant expression.
    #[must_use]
    pub fn constant(&self, value: &Expr) -> Option<i64> {
        match &value.kind {
            ExprKind::Number(number) => Some(*number),
            ExprKind::Name(name) => self.constants.get(name).copied(),
            ExprKind::Cast(_, inner) => self.constant(inner),
            ExprKind::Unary(operator, inner) => {
                let inner = self.constant(inner)?;
                match operator.as_str() {
                    "-" => inner.checked_neg(),
                    "!" => Some(i64::from(inner == 0)),
                    "~" => Some(!inner),
                    "+" => Some(inner),
                    _ => None,
                }
            }
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = (self.constant(left)?, self.constant(right)?);
                match operator.as_str() {
                    "+" => left.checked_add(right),
                    "-" => left.checked_sub(right),
                    "*" => left.checked_mul(right),
                    "/" => left.checked_div(right),
                    "%" => left.checked_rem(right),
                    "<<" => u32::try_from(right).ok().and_then(|right| left.checked_shl(right)),
                    ">>" => u32::try_from(right).ok().and_then(|right| left.checked_shr(right)),
                    "|" => Some(left | right),
                    "&" => Some(left & right),
                    "^" => Some(left ^ right),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Adds what another unit has and this one lacks; what both have is taken from this one.
    pub fn join(&mut self, other: Unit) {
        fn lend<V>(mine: &mut BTreeMap<String, V>, theirs: BTreeMap<String, V>) {
            for (name, value) in theirs {
                mine.entry(name).or_insert(value);
            }
        }
        lend(&mut self.functions, other.functions);
        lend(&mut self.signatures, other.signatures);
        for (name, theirs) in other.globals {
            match self.globals.get(&name) {
                Some(mine) if mine.value.is_some() || theirs.value.is_none() => {}
                _ => {
                    self.globals.insert(name, theirs);
                }
            }
        }
        lend(&mut self.structs, other.structs);
        lend(&mut self.typedefs, other.typedefs);
        lend(&mut self.constants, other.constants);
        self.errors.extend(other.errors);
    }
}

//! C source: its syntax, the reader, and text as tokens.

pub mod parse;
pub mod syntax;
pub mod tokens;

pub use parse::{Unit, parse};
pub use syntax::{Declaration, Expr, ExprKind, Function, Place, Stmt, StmtKind, Type};

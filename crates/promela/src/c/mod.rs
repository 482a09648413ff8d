//! C source: its syntax, the reader, and text as tokens.

mod lines;
pub mod parse;
pub mod syntax;
pub mod tokens;
pub mod unit;

pub use parse::parse;
pub use syntax::{Declaration, Expr, ExprKind, Function, Place, Stmt, StmtKind, Type};
pub use unit::Unit;

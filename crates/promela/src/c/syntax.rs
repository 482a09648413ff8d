//! C as far as a model needs it: statements, expressions and types, each with the place it was written at.

use std::fmt;
use std::sync::Arc;

/// A line of a source file, as the preprocessor's line markers tell it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub at: Place,
    /// The text as it was written, with single blanks.
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExprKind {
    Number(i64),
    Name(String),
    Text,
    /// An operator before its operand: `-`, `!`, `~`, `+`.
    Unary(String, Box<Expr>),
    AddressOf(Box<Expr>),
    Deref(Box<Expr>),
    Binary(String, Box<Expr>, Box<Expr>),
    /// An assignment with its operator, without the `=`; empty for a plain one.
    Assign(String, Box<Expr>, Box<Expr>),
    /// An increment or decrement: `+` or `-`, and whether the value is the one after the change.
    Update {
        operator: char,
        after: bool,
        target: Box<Expr>,
    },
    Call(Box<Expr>, Vec<Expr>),
    Field {
        base: Box<Expr>,
        name: String,
        arrow: bool,
    },
    Index(Box<Expr>, Box<Expr>),
    Cast(Type, Box<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    /// Something that no rule of translation knows, by the grammar's name for it.
    Other(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stmt {
    pub kind: StmtKind,
    pub at: Place,
    /// The text of a single statement as it was written; of one that contains others, its head.
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StmtKind {
    Empty,
    Expr(Expr),
    Declare(Declaration),
    Block(Vec<Stmt>),
    /// Several declarations in one statement.
    Group(Vec<Stmt>),
    If {
        condition: Expr,
        then: Box<Stmt>,
        otherwise: Option<Box<Stmt>>,
    },
    While {
        condition: Expr,
        body: Box<Stmt>,
    },
    DoWhile {
        body: Box<Stmt>,
        condition: Expr,
    },
    For {
        begin: Option<Box<Stmt>>,
        condition: Option<Expr>,
        update: Option<Expr>,
        body: Box<Stmt>,
    },
    Switch {
        value: Expr,
        body: Box<Stmt>,
    },
    /// A label of a switch; `None`: `default`.
    Case {
        value: Option<Expr>,
        body: Vec<Stmt>,
    },
    Label(String, Box<Stmt>),
    Goto(String),
    Break,
    Continue,
    Return(Option<Expr>),
    /// Assembly, nested functions, and everything else that the grammar has.
    Other(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declaration {
    pub name: String,
    pub ty: Type,
    pub value: Option<Expr>,
    pub is_static: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Type {
    Void,
    Bool,
    Integer {
        bits: u8,
        signed: bool,
    },
    /// A structure by its tag; one without a tag has the name of its typedef.
    Struct(String),
    Pointer(Box<Type>),
    Array(Box<Type>, Option<u32>),
    /// A typedef that is not resolved yet.
    Named(String),
    /// Functions, floating point, and everything else that no model has.
    Other(String),
}

impl Type {
    pub const INT: Type = Type::Integer { bits: 32, signed: true };

    #[must_use]
    pub fn is_scalar(&self) -> bool {
        matches!(self, Type::Bool | Type::Integer { .. })
    }

    /// The structure that a pointer points to.
    #[must_use]
    pub fn points_to(&self) -> Option<&str> {
        match self {
            Type::Pointer(to) => match &**to {
                Type::Struct(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Void => f.write_str("void"),
            Type::Bool => f.write_str("bool"),
            Type::Integer { bits, signed } => write!(f, "{}int{bits}_t", if *signed { "" } else { "u" }),
            Type::Struct(name) => write!(f, "struct {name}"),
            Type::Pointer(to) => write!(f, "{to} *"),
            Type::Array(of, Some(size)) => write!(f, "{of}[{size}]"),
            Type::Array(of, None) => write!(f, "{of}[]"),
            Type::Named(name) | Type::Other(name) => f.write_str(name),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    pub name: String,
    pub parameters: Vec<(String, Type)>,
    pub returns: Type,
    pub body: Stmt,
    pub at: Place,
    pub end: Place,
}

impl Expr {
    /// The expressions directly inside, in the order of evaluation.
    #[must_use]
    pub fn parts(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Name(_) | ExprKind::Text | ExprKind::Other(_) => Vec::new(),
            ExprKind::Unary(_, a)
            | ExprKind::AddressOf(a)
            | ExprKind::Deref(a)
            | ExprKind::Update { target: a, .. }
            | ExprKind::Field { base: a, .. }
            | ExprKind::Cast(_, a) => vec![a],
            ExprKind::Binary(_, a, b)
            | ExprKind::Assign(_, a, b)
            | ExprKind::Index(a, b)
            | ExprKind::Comma(a, b) => vec![a, b],
            ExprKind::Call(function, arguments) => {
                let named = matches!(function.kind, ExprKind::Name(_));
                let function = (!named).then_some(&**function);
                function.into_iter().chain(arguments).collect()
            }
            ExprKind::Conditional(a, b, c) => vec![a, b, c],
        }
    }

    /// The name of the function, if it is called by its name.
    #[must_use]
    pub fn called(&self) -> Option<(&str, &[Expr])> {
        match &self.kind {
            ExprKind::Call(function, arguments) => match &function.kind {
                ExprKind::Name(name) => Some((name, arguments)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Stmt {
    /// The statements directly inside.
    #[must_use]
    pub fn parts(&self) -> Vec<&Stmt> {
        match &self.kind {
            StmtKind::Block(body) | StmtKind::Group(body) | StmtKind::Case { body, .. } => {
                body.iter().collect()
            }
            StmtKind::If { then, otherwise, .. } => {
                std::iter::once(&**then).chain(otherwise.as_deref()).collect()
            }
            StmtKind::While { body, .. }
            | StmtKind::DoWhile { body, .. }
            | StmtKind::Switch { body, .. }
            | StmtKind::Label(_, body) => vec![body],
            StmtKind::For { begin, body, .. } => {
                begin.as_deref().into_iter().chain(std::iter::once(&**body)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The expressions directly inside.
    #[must_use]
    pub fn expressions(&self) -> Vec<&Expr> {
        match &self.kind {
            StmtKind::Expr(value) | StmtKind::Return(Some(value)) => vec![value],
            StmtKind::Declare(declaration) => declaration.value.iter().collect(),
            StmtKind::If { condition, .. }
            | StmtKind::While { condition, .. }
            | StmtKind::DoWhile { condition, .. }
            | StmtKind::Switch { value: condition, .. } => vec![condition],
            StmtKind::For { condition, update, .. } => condition.iter().chain(update).collect(),
            _ => Vec::new(),
        }
    }
}

//! From text to a tree: the expressions of C without assignment, increment and comma.
//!
//! Contract: every node knows the bytes it came from, and nesting is bounded, so that hostile text cannot
//! exhaust the stack.

use super::{Problem, Span};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Number {
        value: u64,
        unsigned: bool,
    },
    Text(String),
    Name(String),
    /// `$esp`
    Register(String),
    Member {
        of: Box<Node>,
        name: String,
        at: Span,
        arrow: bool,
    },
    Index {
        of: Box<Node>,
        index: Box<Node>,
    },
    Unary {
        operation: Unary,
        of: Box<Node>,
    },
    Binary {
        operation: Binary,
        left: Box<Node>,
        right: Box<Node>,
    },
    Conditional {
        condition: Box<Node>,
        yes: Box<Node>,
        no: Box<Node>,
    },
    Cast {
        to: TypeName,
        of: Box<Node>,
    },
    SizeOfType(TypeName),
    SizeOf(Box<Node>),
    /// `open` is set when the list ends with `...`.
    Call {
        function: String,
        arguments: Vec<Argument>,
        open: bool,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Argument {
    Value(Node),
    Type(TypeName),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TypeName {
    pub base: Base,
    pub pointers: usize,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Base {
    Void,
    Integer { size: IntegerSize, signed: bool },
    Struct(String),
    Enum(String),
    Named(String),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum IntegerSize {
    Char,
    Short,
    Int,
    Long,
    LongLong,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Dereference,
    Address,
    Negate,
    Plus,
    Not,
    Complement,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    ShiftLeft,
    ShiftRight,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

impl Binary {
    /// Spelling and precedence; higher binds tighter.
    const TABLE: [(&'static str, Binary, u8); 18] = [
        ("<<", Binary::ShiftLeft, 8),
        (">>", Binary::ShiftRight, 8),
        ("<=", Binary::LessOrEqual, 7),
        (">=", Binary::GreaterOrEqual, 7),
        ("==", Binary::Equal, 6),
        ("!=", Binary::NotEqual, 6),
        ("&&", Binary::And, 2),
        ("||", Binary::Or, 1),
        ("*", Binary::Multiply, 10),
        ("/", Binary::Divide, 10),
        ("%", Binary::Remainder, 10),
        ("+", Binary::Add, 9),
        ("-", Binary::Subtract, 9),
        ("<", Binary::Less, 7),
        (">", Binary::Greater, 7),
        ("&", Binary::BitAnd, 5),
        ("^", Binary::BitXor, 4),
        ("|", Binary::BitOr, 3),
    ];

    pub(crate) fn spelling(self) -> &'static str {
        Binary::TABLE.iter().find(|(_, operation, _)| *operation == self).map_or("?", |(text, ..)| text)
    }

    pub(crate) fn compares(self) -> bool {
        use Binary::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual)
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Number { value: u64, unsigned: bool },
    Text(String),
    Word(String),
    Register(String),
    Symbol(&'static str),
    End,
}

const SYMBOLS: [&str; 31] = [
    "...", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "*", "/", "%", "+", "-", "<", ">", "&", "^",
    "|", "!", "~", "(", ")", "[", "]", ".", ",", "?", ":", "=",
];

fn tokenize(text: &str) -> Result<Vec<(Token, Span)>, Problem> {
    let bytes = text.as_bytes();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let token = if byte.is_ascii_digit() {
            at += bytes[at..].iter().take_while(|byte| word(byte)).count();
            number(&text[start..at]).ok_or_else(|| {
                Problem::new(
                    start..at,
                    format!("'{}' is not a number that fits in 64 bits", &text[start..at]),
                )
            })?
        } else if word(&byte) {
            at += bytes[at..].iter().take_while(|byte| word(byte)).count();
            Token::Word(text[start..at].to_string())
        } else if byte == b'$' {
            at += 1 + bytes[at + 1..].iter().take_while(|byte| word(byte)).count();
            Token::Register(text[start + 1..at].to_string())
        } else if byte == b'"' || byte == b'\'' {
            let (value, length) =
                quoted(&text[at..]).map_err(|message| Problem::new(start..bytes.len(), message))?;
            at += length;
            match byte {
                b'"' => Token::Text(value),
                _ => {
                    let mut characters = value.bytes();
                    match (characters.next(), characters.next()) {
                        (Some(value), None) => Token::Number { value: u64::from(value), unsigned: false },
                        _ => {
                            return Err(Problem::new(start..at, "one character is expected between ' and '"));
                        }
                    }
                }
            }
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| text[at..].starts_with(**symbol)) {
            at += symbol.len();
            Token::Symbol(symbol)
        } else {
            let character = text[at..].chars().next().unwrap_or('?');
            return Err(Problem::new(
                start..start + character.len_utf8(),
                format!("'{character}' does not belong into an expression"),
            ));
        };
        tokens.push((token, start..at));
    }
    tokens.push((Token::End, bytes.len()..bytes.len()));
    Ok(tokens)
}

fn number(text: &str) -> Option<Token> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['u', 'l']);
    let suffix = &lower[digits.len()..];
    let value = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()?
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(&digits[1..], 8).ok()?
    } else {
        digits.parse().ok()?
    };
    Some(Token::Number { value, unsigned: suffix.contains('u') })
}

/// A quoted piece at the start of `text`: its value and its length with quotes.
fn quoted(text: &str) -> Result<(String, usize), &'static str> {
    let quote = text.chars().next();
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            _ if Some(character) == quote => return Ok((value, at + character.len_utf8())),
            '\\' => {
                let (_, escaped) = characters.next().ok_or("the quote is not closed")?;
                value.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '0' => '\0',
                    'b' => '\u{8}',
                    'e' => '\u{1b}',
                    other => other,
                });
            }
            _ => value.push(character),
        }
    }
    Err("the quote is not closed")
}

/// Nesting beyond this is refused.
const DEPTH_MAX: usize = 100;

struct Parser<'a> {
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: usize,
    is_type: &'a dyn Fn(&str) -> bool,
}

/// Parses a whole expression. `is_type` tells typedef names from other names.
pub(crate) fn parse(text: &str, is_type: &dyn Fn(&str) -> bool) -> Result<Node, Problem> {
    let mut parser = Parser { tokens: tokenize(text)?, at: 0, depth: 0, is_type };
    let node = parser.conditional()?;
    match parser.peek() {
        Token::End => Ok(node),
        Token::Symbol("=") => Err(Problem::new(parser.span(), "an expression cannot assign; '==' compares")),
        _ => Err(parser.expected("an operator or the end")),
    }
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1.clone()
    }

    fn next(&mut self) -> (Token, Span) {
        let token = self.tokens[self.at].clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Problem> {
        if self.eat(symbol) { Ok(()) } else { Err(self.expected(&format!("'{symbol}'"))) }
    }

    fn expected(&self, what: &str) -> Problem {
        let found = match self.peek() {
            Token::End => "the expression ends".to_string(),
            Token::Symbol(symbol) => format!("'{symbol}' was found"),
            Token::Word(word) => format!("'{word}' was found"),
            Token::Register(word) => format!("'${word}' was found"),
            Token::Number { value, .. } => format!("'{value}' was found"),
            Token::Text(_) => "a text was found".to_string(),
        };
        Problem::new(self.span(), format!("{what} is expected, but {found}"))
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth == DEPTH_MAX {
            return Err(Problem::new(self.span(), "the expression is nested too deeply"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn conditional(&mut self) -> Result<Node, Problem> {
        self.deeper(|parser| {
            let condition = parser.binary(1)?;
            if !parser.eat("?") {
                return Ok(condition);
            }
            let yes = parser.conditional()?;
            parser.expect(":")?;
            let no = parser.conditional()?;
            let span = condition.span.start..no.span.end;
            let (condition, yes, no) = (Box::new(condition), Box::new(yes), Box::new(no));
            Ok(Node { kind: Kind::Conditional { condition, yes, no }, span })
        })
    }

    fn binary(&mut self, least: u8) -> Result<Node, Problem> {
        let mut left = self.unary()?;
        let mut links = 0;
        while let Token::Symbol(symbol) = *self.peek() {
            let Some((_, operation, precedence)) =
                Binary::TABLE.iter().copied().find(|(text, ..)| *text == symbol)
            else {
                break;
            };
            if precedence < least {
                break;
            }
            links += 1;
            if links > DEPTH_MAX {
                return Err(Problem::new(self.span(), "the expression is too long"));
            }
            self.next();
            let right = self.deeper(|parser| parser.binary(precedence + 1))?;
            let span = left.span.start..right.span.end;
            left =
                Node { kind: Kind::Binary { operation, left: Box::new(left), right: Box::new(right) }, span };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        self.deeper(|parser| {
            let start = parser.span().start;
            let operation = match parser.peek() {
                Token::Symbol("*") => Unary::Dereference,
                Token::Symbol("&") => Unary::Address,
                Token::Symbol("-") => Unary::Negate,
                Token::Symbol("+") => Unary::Plus,
                Token::Symbol("!") => Unary::Not,
                Token::Symbol("~") => Unary::Complement,
                Token::Symbol("(") if parser.type_follows(1) => {
                    parser.next();
                    let to = parser.type_name()?;
                    parser.expect(")")?;
                    let of = Box::new(parser.unary()?);
                    let span = start..of.span.end;
                    return Ok(Node { kind: Kind::Cast { to, of }, span });
                }
                Token::Word(word) if word == "sizeof" => return parser.size_of(start),
                _ => return parser.postfix(),
            };
            parser.next();
            let of = Box::new(parser.unary()?);
            let span = start..of.span.end;
            Ok(Node { kind: Kind::Unary { operation, of }, span })
        })
    }

    fn size_of(&mut self, start: usize) -> Result<Node, Problem> {
        self.next();
        if matches!(self.peek(), Token::Symbol("(")) && self.type_follows(1) {
            self.next();
            let ty = self.type_name()?;
            let end = self.span().end;
            self.expect(")")?;
            return Ok(Node { kind: Kind::SizeOfType(ty), span: start..end });
        }
        let of = Box::new(self.unary()?);
        let span = start..of.span.end;
        Ok(Node { kind: Kind::SizeOf(of), span })
    }

    fn type_follows(&self, ahead: usize) -> bool {
        match self.tokens.get(self.at + ahead).map(|(token, _)| token) {
            Some(Token::Word(word)) => {
                matches!(
                    word.as_str(),
                    "struct"
                        | "union"
                        | "enum"
                        | "const"
                        | "volatile"
                        | "unsigned"
                        | "signed"
                        | "void"
                        | "char"
                        | "short"
                        | "int"
                        | "long"
                        | "_Bool"
                ) || (self.is_type)(word)
            }
            _ => false,
        }
    }

    fn type_name(&mut self) -> Result<TypeName, Problem> {
        let start = self.span().start;
        let mut base = None;
        let (mut longs, mut size, mut signed) = (0, None, None);
        while self.type_follows(0) {
            let Token::Word(word) = self.next().0 else { break };
            match word.as_str() {
                "const" | "volatile" => {}
                "struct" | "union" | "enum" => {
                    let Token::Word(name) = self.peek().clone() else {
                        return Err(self.expected("a name"));
                    };
                    self.next();
                    base = Some(if word == "enum" { Base::Enum(name) } else { Base::Struct(name) });
                }
                "unsigned" => signed = Some(false),
                "signed" => signed = Some(true),
                "long" => longs += 1,
                "short" => size = Some(IntegerSize::Short),
                "char" => size = Some(IntegerSize::Char),
                "_Bool" => {
                    size = Some(IntegerSize::Char);
                    signed = Some(false);
                }
                "int" => {
                    size.get_or_insert(IntegerSize::Int);
                }
                "void" => base = Some(Base::Void),
                _ => {
                    base = Some(Base::Named(word));
                    break;
                }
            }
        }
        let size = match (longs, size) {
            (0, size) => size,
            (1, _) => Some(IntegerSize::Long),
            _ => Some(IntegerSize::LongLong),
        };
        let base = match (base, size, signed) {
            (Some(base), None, None) => base,
            (None, Some(size), signed) => Base::Integer { size, signed: signed.unwrap_or(true) },
            (None, None, Some(signed)) => Base::Integer { size: IntegerSize::Int, signed },
            _ => return Err(self.expected("a type")),
        };
        let mut pointers = 0;
        while self.eat("*") {
            pointers += 1;
            while matches!(self.peek(), Token::Word(word) if word == "const" || word == "volatile") {
                self.next();
            }
        }
        Ok(TypeName { base, pointers, span: start..self.span().start })
    }

    fn postfix(&mut self) -> Result<Node, Problem> {
        let mut node = self.primary()?;
        let mut links = 0;
        loop {
            links += 1;
            if links > DEPTH_MAX {
                return Err(Problem::new(self.span(), "the expression is too long"));
            }
            let start = node.span.start;
            let arrow = matches!(self.peek(), Token::Symbol("->"));
            if self.eat("[") {
                let index = Box::new(self.conditional()?);
                let end = self.span().end;
                self.expect("]")?;
                node = Node { kind: Kind::Index { of: Box::new(node), index }, span: start..end };
            } else if self.eat("->") || self.eat(".") {
                let (token, span) = self.next();
                let Token::Word(name) = token else {
                    self.at = self.at.saturating_sub(1);
                    return Err(Problem::new(span, "the name of a member is expected"));
                };
                let of = Box::new(node);
                let whole = start..span.end;
                node = Node { kind: Kind::Member { of, name, at: span, arrow }, span: whole };
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, Problem> {
        if matches!(self.peek(), Token::Symbol(symbol) if *symbol != "(") || *self.peek() == Token::End {
            return Err(self.expected("a value"));
        }
        let (token, span) = self.next();
        let kind = match token {
            Token::Number { value, unsigned } => Kind::Number { value, unsigned },
            Token::Text(text) => Kind::Text(text),
            Token::Register(name) => Kind::Register(name),
            Token::Word(function) if matches!(self.peek(), Token::Symbol("(")) => {
                return self.call(function, span.start);
            }
            Token::Word(name) => Kind::Name(name),
            Token::Symbol(_) | Token::End => {
                let inner = self.conditional()?;
                let end = self.span().end;
                self.expect(")")?;
                return Ok(Node { kind: inner.kind, span: span.start..end });
            }
        };
        Ok(Node { kind, span })
    }

    fn call(&mut self, function: String, start: usize) -> Result<Node, Problem> {
        self.expect("(")?;
        let (mut arguments, mut open) = (Vec::new(), false);
        if !matches!(self.peek(), Token::Symbol(")")) {
            loop {
                if self.eat("...") {
                    open = true;
                    break;
                }
                arguments.push(if self.type_follows(0) {
                    Argument::Type(self.type_name()?)
                } else {
                    Argument::Value(self.conditional()?)
                });
                if !self.eat(",") {
                    break;
                }
            }
        }
        let end = self.span().end;
        self.expect(")")?;
        Ok(Node { kind: Kind::Call { function, arguments, open }, span: start..end })
    }
}

//! BTF: the types of a kernel, which it carries for its tracing programs. Structs with the offsets of their
//! members, the parameters of functions, and the types of per-CPU variables (not those of others, which
//! compilers leave out).
//!
//! Contract: total on damaged sections: what cannot be read ends the table, and a type that names one beyond
//! its end names none. Type ids of the section are those of [`Types`]. Source: the kernel's
//! Documentation/bpf/btf.rst. Not modelled: the split types of modules.

use crate::elf::types::{Member, Type, TypeId, Types};
use rustc_hash::FxHashMap;
use std::sync::Arc;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
/// The most types that are read; kernels have about a hundred thousand.
const TYPES_MAX: usize = 4 << 20;
const PER_CPU_SECTION: &str = ".data..percpu";

mod kind {
    pub const INT: u32 = 1;
    pub const POINTER: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FORWARD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNCTION: u32 = 12;
    pub const PROTOTYPE: u32 = 13;
    pub const VARIABLE: u32 = 14;
    pub const DATA_SECTION: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECLARATION_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    pub name: Arc<str>,
    pub ty: TypeId,
}

#[derive(Clone, Debug)]
pub struct Btf {
    pub types: Types,
    /// The prototype of each function.
    functions: FxHashMap<Arc<str>, u32>,
    prototypes: FxHashMap<u32, Vec<Parameter>>,
    per_cpu: FxHashMap<Arc<str>, TypeId>,
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }
}

struct Reader<'a> {
    strings: &'a [u8],
    btf: Btf,
    variables: FxHashMap<u32, (Arc<str>, u32)>,
    named_functions: Vec<(Arc<str>, u32)>,
}

impl Btf {
    #[must_use]
    pub fn parse(section: &[u8]) -> Option<Btf> {
        let word = |at: usize| Some(u32::from_le_bytes(section.get(at..at + 4)?.try_into().ok()?) as usize);
        let magic = u16::from_le_bytes(section.get(..2)?.try_into().ok()?);
        if magic != MAGIC || section.len() < HEADER_BYTES {
            return None;
        }
        let header = word(4)?;
        let part = |offset: usize, length: usize| {
            let start = header.checked_add(offset)?;
            section.get(start..start.checked_add(length)?)
        };
        let types = part(word(8)?, word(12)?)?;
        let strings = part(word(16)?, word(20)?)?;
        let btf = Btf {
            types: Types::new(8),
            functions: FxHashMap::default(),
            prototypes: FxHashMap::default(),
            per_cpu: FxHashMap::default(),
        };
        let mut reader =
            Reader { strings, btf, variables: FxHashMap::default(), named_functions: Vec::new() };
        let mut words = Words(types);
        for id in 1..TYPES_MAX as u32 {
            if reader.read(id, &mut words).is_none() {
                break;
            }
        }
        let mut btf = reader.btf;
        btf.types.index();
        btf.functions = reader.named_functions.into_iter().collect();
        Some(btf)
    }

    /// How far into `struct NAME` a member is; `a.b` goes through nested ones.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u64> {
        self.member(structure, path).map(|(offset, _)| offset)
    }

    /// How far into `struct NAME` a member is, and its type; `a.b` goes through nested ones.
    #[must_use]
    pub fn member(&self, structure: &str, path: &str) -> Option<(u64, TypeId)> {
        let mut ty = self.types.structure(structure)?;
        let mut offset = 0u64;
        for name in path.split('.') {
            let member = self.types.member(ty, name)?;
            offset = offset.wrapping_add(member.offset);
            ty = member.ty;
        }
        Some((offset, ty))
    }

    /// Bytes of `struct NAME`.
    #[must_use]
    pub fn size(&self, structure: &str) -> Option<u64> {
        self.types.size(self.types.structure(structure)?)
    }

    /// The value of an enumerator of a named enum.
    #[must_use]
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<i64> {
        let Type::Enum { enumerators, .. } = self.types.get(self.types.enumeration(enumeration)?) else {
            return None;
        };
        enumerators.iter().find(|(own, _)| &**own == name).map(|(_, value)| *value)
    }

    /// The parameters of a function; `None` if it is not known.
    #[must_use]
    pub fn parameters(&self, function: &str) -> Option<&[Parameter]> {
        self.prototypes.get(self.functions.get(function)?).map(Vec::as_slice)
    }

    /// The type of a per-CPU variable.
    #[must_use]
    pub fn per_cpu(&self, name: &str) -> Option<TypeId> {
        self.per_cpu.get(name).copied()
    }
}

impl Reader<'_> {
    fn text(&self, offset: u32) -> Arc<str> {
        let bytes = self.strings.get(offset as usize..).unwrap_or(&[]);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..end]).into()
    }

    fn name(&self, offset: u32) -> Option<Arc<str>> {
        Some(self.text(offset)).filter(|name| !name.is_empty())
    }

    /// Reads type `id`; `None` at the end, and where the section makes no sense any more.
    fn read(&mut self, id: u32, words: &mut Words<'_>) -> Option<()> {
        let (name, info, extra) = (words.next()?, words.next()?, words.next()?);
        let (count, flag) = (info & 0xffff, info >> 31 == 1);
        let to = TypeId(extra);
        let ty = match info >> 24 & 0x1f {
            kind::INT => {
                let encoding = words.next()?;
                let (size, signed) = (extra.min(16) as u8, encoding >> 24 & 1 == 1);
                Type::Integer { name: self.text(name), size, signed }
            }
            kind::FLOAT => Type::Float { name: self.text(name), size: extra.min(16) as u8 },
            kind::POINTER => Type::Pointer { to, size: 8 },
            kind::ARRAY => {
                let (of, _, count) = (words.next()?, words.next()?, words.next()?);
                Type::Array { of: TypeId(of), count: Some(count.into()) }
            }
            kind @ (kind::STRUCT | kind::UNION) => {
                let members = self.members(count, flag, words)?;
                let union = kind == kind::UNION;
                Type::Struct { name: self.name(name), size: extra.into(), members, union, complete: true }
            }
            kind @ (kind::ENUM | kind::ENUM64) => self.enumeration(name, extra, count, kind, words)?,
            kind::FORWARD => {
                let name = self.name(name);
                Type::Struct { name, size: 0, members: Vec::new(), union: flag, complete: false }
            }
            kind::TYPEDEF => Type::Typedef { name: self.text(name), to },
            kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => Type::Qualified { to },
            kind::FUNCTION => {
                self.named_functions.push((self.text(name), extra));
                Type::Void
            }
            kind::PROTOTYPE => {
                let mut parameters = Vec::new();
                for _ in 0..count {
                    let (name, ty) = (words.next()?, TypeId(words.next()?));
                    parameters.push(Parameter { name: self.text(name), ty });
                }
                self.btf.prototypes.insert(id, parameters);
                Type::Function { returns: to }
            }
            kind::VARIABLE => {
                words.next()?;
                self.variables.insert(id, (self.text(name), extra));
                Type::Void
            }
            kind::DATA_SECTION => {
                let per_cpu = &*self.text(name) == PER_CPU_SECTION;
                for _ in 0..count {
                    let (variable, _, _) = (words.next()?, words.next()?, words.next()?);
                    if let (true, Some((name, ty))) = (per_cpu, self.variables.get(&variable)) {
                        self.btf.per_cpu.insert(name.clone(), TypeId(*ty));
                    }
                }
                Type::Void
            }
            kind::DECLARATION_TAG => {
                words.next()?;
                Type::Void
            }
            _ => return None,
        };
        self.btf.types.add(ty);
        Some(())
    }

    fn members(&self, count: u32, bit_fields: bool, words: &mut Words<'_>) -> Option<Vec<Member>> {
        let mut members = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (name, ty, place) = (words.next()?, TypeId(words.next()?), words.next()?);
            let (bit, width) = if bit_fields { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let bits = (width > 0).then_some(((bit % 8) as u8, width as u8));
            members.push(Member { name: self.name(name), offset: u64::from(bit / 8), ty, bits });
        }
        Some(members)
    }

    fn enumeration(
        &self,
        name: u32,
        size: u32,
        count: u32,
        kind: u32,
        words: &mut Words<'_>,
    ) -> Option<Type> {
        let mut enumerators = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (name, low) = (words.next()?, words.next()?);
            let value = match kind {
                kind::ENUM64 => (u64::from(words.next()?) << 32 | u64::from(low)) as i64,
                _ => i64::from(low as i32),
            };
            enumerators.push((self.text(name), value));
        }
        Some(Type::Enum { name: self.name(name), size: size.min(8) as u8, enumerators })
    }
}

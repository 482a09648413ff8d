//! The types of a program: an arena of nodes that name each other by index, with lookup by name.
//!
//! Contract: total on damaged input. Sizes are computed with checked arithmetic, chains of typedefs are
//! followed to a bound, and a struct that one unit only declares is completed by the definition of another.

use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TypeId(pub u32);

impl TypeId {
    pub const VOID: TypeId = TypeId(0);
}

#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    Void,
    Integer {
        name: Arc<str>,
        size: u8,
        signed: bool,
    },
    Float {
        name: Arc<str>,
        size: u8,
    },
    Pointer {
        to: TypeId,
        size: u8,
    },
    /// An array; `count` is unknown for `int x[]`.
    Array {
        of: TypeId,
        count: Option<u64>,
    },
    Struct {
        name: Option<Arc<str>>,
        size: u64,
        members: Vec<Member>,
        union: bool,
        complete: bool,
    },
    Enum {
        name: Option<Arc<str>>,
        size: u8,
        enumerators: Vec<(Arc<str>, i64)>,
    },
    Typedef {
        name: Arc<str>,
        to: TypeId,
    },
    Qualified {
        to: TypeId,
    },
    Function {
        returns: TypeId,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// The name; `None` for an anonymous struct or union, whose members count as the parent's.
    pub name: Option<Arc<str>>,
    pub offset: u64,
    pub ty: TypeId,
    /// The first bit and the width of a bit field.
    pub bits: Option<(u8, u8)>,
}

/// How deep typedefs, qualifiers and nested anonymous structs are followed: a deeper chain is a cycle in a
/// damaged file.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Types {
    nodes: Vec<Type>,
    word: usize,
    structs: FxHashMap<Arc<str>, TypeId>,
    enums: FxHashMap<Arc<str>, TypeId>,
    others: FxHashMap<Arc<str>, TypeId>,
    /// Dimensions of arrays beyond the first, while types are loaded.
    dimensions: Vec<(TypeId, Option<u64>)>,
}

impl Types {
    #[must_use]
    pub fn new(word: usize) -> Self {
        Types { nodes: vec![Type::Void], word, ..Types::default() }
    }

    /// Bytes of an address.
    #[must_use]
    pub fn word(&self) -> usize {
        self.word
    }

    #[must_use]
    pub fn get(&self, id: TypeId) -> &Type {
        self.nodes.get(id.0 as usize).unwrap_or(&Type::Void)
    }

    pub(crate) fn add(&mut self, ty: Type) -> TypeId {
        self.nodes.push(ty);
        TypeId(self.nodes.len() as u32 - 1)
    }

    pub(crate) fn set(&mut self, id: TypeId, ty: Type) {
        self.nodes[id.0 as usize] = ty;
    }

    pub(crate) fn push_member(&mut self, id: TypeId, member: Member) {
        if let Type::Struct { members, .. } = &mut self.nodes[id.0 as usize] {
            members.push(member);
        }
    }

    pub(crate) fn push_enumerator(&mut self, id: TypeId, name: Arc<str>, value: i64) {
        if let Type::Enum { enumerators, .. } = &mut self.nodes[id.0 as usize] {
            enumerators.push((name, value));
        }
    }

    pub(crate) fn push_dimension(&mut self, id: TypeId, length: Option<u64>) {
        self.dimensions.push((id, length));
    }

    /// Turns arrays of several dimensions into arrays of arrays.
    fn nest_arrays(&mut self) {
        let mut dimensions = std::mem::take(&mut self.dimensions);
        dimensions.sort_by_key(|(id, _)| *id);
        for group in dimensions.chunk_by(|a, b| a.0 == b.0) {
            let id = group[0].0;
            let Type::Array { mut of, .. } = *self.get(id) else { continue };
            for (_, count) in group[1..].iter().rev() {
                of = self.add(Type::Array { of, count: *count });
            }
            self.set(id, Type::Array { of, count: group[0].1 });
        }
    }

    /// Makes the names findable; called once everything is in. The first complete definition of a name
    /// counts.
    pub(crate) fn index(&mut self) {
        self.nest_arrays();
        for (at, node) in self.nodes.iter().enumerate() {
            let id = TypeId(at as u32);
            let (map, name) = match node {
                Type::Struct { name: Some(name), complete: true, .. } => (&mut self.structs, name),
                Type::Enum { name: Some(name), .. } => (&mut self.enums, name),
                Type::Typedef { name, .. } | Type::Integer { name, .. } | Type::Float { name, .. } => {
                    (&mut self.others, name)
                }
                _ => continue,
            };
            map.entry(name.clone()).or_insert(id);
        }
    }

    /// `struct NAME` or `union NAME`.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<TypeId> {
        self.structs.get(name).copied()
    }

    #[must_use]
    pub fn enumeration(&self, name: &str) -> Option<TypeId> {
        self.enums.get(name).copied()
    }

    /// A typedef or a basic type.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<TypeId> {
        self.others.get(name).copied()
    }

    /// Every name that [`Types::structure`], [`Types::enumeration`] or [`Types::named`] knows, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.structs.keys().chain(self.enums.keys()).chain(self.others.keys()).map(|name| &**name)
    }

    /// Names of structs, in order.
    #[must_use]
    pub fn structures(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.structs.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// The type behind typedefs and qualifiers, and the definition behind a declaration.
    #[must_use]
    pub fn strip(&self, mut id: TypeId) -> TypeId {
        for _ in 0..DEPTH_MAX {
            match self.get(id) {
                Type::Typedef { to, .. } | Type::Qualified { to } => id = *to,
                Type::Struct { name: Some(name), complete: false, .. } => {
                    return self.structure(name).unwrap_or(id);
                }
                _ => return id,
            }
        }
        TypeId::VOID
    }

    #[must_use]
    pub fn size(&self, id: TypeId) -> Option<u64> {
        self.size_within(id, DEPTH_MAX)
    }

    fn size_within(&self, id: TypeId, depth: usize) -> Option<u64> {
        match self.get(self.strip(id)) {
            Type::Integer { size, .. } | Type::Float { size, .. } => Some(u64::from(*size)),
            Type::Pointer { size, .. } | Type::Enum { size, .. } => Some(u64::from(*size)),
            Type::Struct { size, complete: true, .. } => Some(*size),
            Type::Array { of, count } => self.size_within(*of, depth.checked_sub(1)?)?.checked_mul((*count)?),
            _ => None,
        }
    }

    /// A member by name, also through anonymous structs and unions; its offset counts from the start of `id`.
    #[must_use]
    pub fn member(&self, id: TypeId, name: &str) -> Option<Member> {
        self.member_within(id, name, DEPTH_MAX)
    }

    fn member_within(&self, id: TypeId, name: &str, depth: usize) -> Option<Member> {
        let Type::Struct { members, .. } = self.get(self.strip(id)) else { return None };
        if let Some(member) = members.iter().find(|member| member.name.as_deref() == Some(name)) {
            return Some(member.clone());
        }
        members.iter().filter(|member| member.name.is_none()).find_map(|outer| {
            let inner = self.member_within(outer.ty, name, depth.checked_sub(1)?)?;
            Some(Member { offset: outer.offset.wrapping_add(inner.offset), ..inner })
        })
    }

    /// Names of the members, those of anonymous structs included.
    #[must_use]
    pub fn member_names(&self, id: TypeId) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        self.collect_members(id, &mut names, DEPTH_MAX);
        names
    }

    fn collect_members(&self, id: TypeId, names: &mut Vec<Arc<str>>, depth: usize) {
        let Type::Struct { members, .. } = self.get(self.strip(id)) else { return };
        for member in members {
            match &member.name {
                Some(name) => names.push(name.clone()),
                None if depth > 0 => self.collect_members(member.ty, names, depth - 1),
                None => {}
            }
        }
    }

    /// What lies `offset` bytes into a value: `.head.next`, `[3].state`, or nothing for the value itself.
    #[must_use]
    pub fn path(&self, id: TypeId, offset: u64) -> String {
        self.path_to(id, offset, &[])
    }

    /// What lies `offset` bytes into a value, but no further into a value of one of the types `whole` that
    /// begins there.
    #[must_use]
    pub fn path_to(&self, id: TypeId, offset: u64, whole: &[TypeId]) -> String {
        let mut path = String::new();
        let (mut id, mut offset) = (self.strip(id), offset);
        // Each source file has types of its own; the name makes them the same.
        let is_whole =
            |id: TypeId| whole.iter().any(|whole| self.display(self.strip(*whole)) == self.display(id));
        for _ in 0..DEPTH_MAX {
            if offset == 0 && is_whole(id) {
                break;
            }
            match self.get(id) {
                Type::Struct { members, .. } => {
                    let within = members.iter().filter(|member| {
                        let size = self.size(member.ty).unwrap_or(1).max(1);
                        member.offset <= offset && offset - member.offset < size
                    });
                    // The members of a union overlap: the smallest tells most.
                    let Some(member) =
                        within.min_by_key(|member| (self.size(member.ty).unwrap_or(u64::MAX), member.offset))
                    else {
                        break;
                    };
                    if let Some(name) = &member.name {
                        path.push('.');
                        path.push_str(name);
                    }
                    offset -= member.offset;
                    id = self.strip(member.ty);
                }
                Type::Array { of, .. } => {
                    let Some(size) = self.size(*of).filter(|size| *size > 0) else { break };
                    path.push_str(&format!("[{}]", offset / size));
                    offset %= size;
                    id = self.strip(*of);
                }
                _ => break,
            }
        }
        if offset > 0 {
            path.push_str(&format!("+{offset}"));
        }
        path
    }

    /// The type as C writes it, near enough for messages.
    #[must_use]
    pub fn display(&self, id: TypeId) -> String {
        self.display_within(id, 16)
    }

    fn display_within(&self, id: TypeId, depth: usize) -> String {
        if depth == 0 {
            return "…".into();
        }
        match self.get(id) {
            Type::Void => "void".into(),
            Type::Integer { name, .. } | Type::Float { name, .. } | Type::Typedef { name, .. } => {
                name.to_string()
            }
            Type::Pointer { to, .. } => {
                let to = self.display_within(*to, depth - 1);
                if to.ends_with('*') { format!("{to}*") } else { format!("{to} *") }
            }
            Type::Array { of, count } => {
                let count = count.map_or(String::new(), |count| count.to_string());
                let of = self.display_within(*of, depth - 1);
                // Outer dimensions come first.
                let (base, inner) = of.split_at(of.find('[').unwrap_or(of.len()));
                format!("{base}[{count}]{inner}")
            }
            Type::Struct { name, union, .. } => {
                let kind = if *union { "union" } else { "struct" };
                format!("{kind} {}", name.as_deref().unwrap_or("{…}"))
            }
            Type::Enum { name, .. } => format!("enum {}", name.as_deref().unwrap_or("{…}")),
            Type::Qualified { to } => self.display_within(*to, depth - 1),
            Type::Function { returns } => format!("{} (…)", self.display_within(*returns, depth - 1)),
        }
    }
}

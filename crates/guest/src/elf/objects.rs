//! What heap memory holds, by the types of the pointers that the code goes through.
//!
//! Every access that was seen ([`trace::Sighting`]) through a variable of a known type is a statement: here
//! lies a structure of that type. Statements about overlapping memory have to agree: all others must name a
//! part of the largest one, at its place. Where they do not, nothing is said. A block that was allocated anew
//! is other memory.
//!
//! Limits: an access through an intermediate value (`a->b->c`) states nothing itself; it is named by what
//! others state. Only structures are known, one at a time: an array of them shows as its elements.

use crate::elf::image::Image;
use crate::elf::types::{Type, TypeId, Types};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, Event, Occurrence, Step, VirtAddr};

/// Which memory: the number of the block, counted in the order of allocation; 0 for what was there before.
type Era = usize;

/// A structure at an address.
#[derive(Clone, Debug)]
struct Object {
    start: u64,
    end: u64,
    image: Arc<Image>,
    ty: TypeId,
}

impl Object {
    fn contains(&self, part: &Object) -> bool {
        let inside = self.start <= part.start && part.end <= self.end;
        inside
            && Arc::ptr_eq(&self.image, &part.image)
            && has_part(self.image.types(), self.ty, part.start - self.start, part.ty, DEPTH_MAX)
    }
}

/// Structures nested deeper than this are a cycle in a damaged file.
const DEPTH_MAX: usize = 16;

/// Whether two types are the same: each source file has types of its own, which are the same if they have the
/// same name.
fn is_same(types: &Types, a: TypeId, b: TypeId) -> bool {
    let anonymous = |id: TypeId| matches!(types.get(id), Type::Struct { name: None, .. });
    let named = |a: TypeId, b: TypeId| !anonymous(a) && types.display(a) == types.display(b);
    let (plain_a, plain_b) = (types.strip(a), types.strip(b));
    plain_a == plain_b || types.size(a) == types.size(b) && (named(a, b) || named(plain_a, plain_b))
}

/// Whether a `part` begins `offset` bytes into an `id`.
fn has_part(types: &Types, id: TypeId, offset: u64, part: TypeId, depth: usize) -> bool {
    if offset == 0 && is_same(types, id, part) {
        return true;
    }
    if depth == 0 {
        return false;
    }
    match types.get(types.strip(id)) {
        Type::Struct { members, .. } => members.iter().any(|member| {
            let size = types.size(member.ty).unwrap_or(0);
            member.offset <= offset
                && offset - member.offset < size
                && has_part(types, member.ty, offset - member.offset, part, depth - 1)
        }),
        Type::Array { of, .. } => {
            let size = types.size(*of).filter(|size| *size > 0);
            size.is_some_and(|size| has_part(types, *of, offset % size, part, depth - 1))
        }
        _ => false,
    }
}

/// The objects that all statements of an execution agree on.
#[derive(Debug, Default)]
pub struct Objects {
    /// The objects that the statements agree on, disjoint, by start.
    known: BTreeMap<Era, Vec<Object>>,
}

/// The blocks of the heap while an execution goes on.
#[derive(Default)]
struct Blocks {
    /// Blocks by address, each with its size and era; freed ones stay until their memory is used again.
    at: BTreeMap<u64, (u64, Era)>,
    eras: Era,
}

impl Blocks {
    fn event(&mut self, event: &Event) {
        let Action::Alloc { addr, size, .. } = event.action else { return };
        let end = addr.0.saturating_add(size);
        let overlaps = |(start, (size, _)): (&u64, &(u64, Era))| {
            (start.saturating_add(*size) > addr.0).then_some(*start)
        };
        let gone: Vec<u64> = self.at.range(..end).filter_map(overlaps).collect();
        for start in gone {
            self.at.remove(&start);
        }
        self.eras += 1;
        self.at.insert(addr.0, (size, self.eras));
    }

    /// The memory at an address and where it ends.
    fn find(&self, addr: u64) -> (Era, u64) {
        let before = self.at.range(..=addr).next_back();
        let block = before.filter(|(start, (size, _))| addr - **start < *size);
        block.map_or((0, u64::MAX), |(start, (size, era))| (*era, start.saturating_add(*size)))
    }
}

impl Objects {
    /// Finds what the steps say, and names the accesses of their sightings by it. `image_at` tells whose code
    /// is at an address.
    pub fn learn(steps: &mut [Step], image_at: &dyn Fn(VirtAddr) -> Arc<Image>) -> Objects {
        let mut stated: BTreeMap<Era, Vec<Object>> = BTreeMap::new();
        let mut eras: Vec<Era> = Vec::new();
        let mut blocks = Blocks::default();
        for step in steps.iter() {
            let mut index = 0;
            for (_, what) in step.occurrences() {
                let access = match what {
                    Occurrence::Event(event) => {
                        blocks.event(event);
                        continue;
                    }
                    Occurrence::Access(access) => access,
                };
                let Some(sighting) = step.sighting(index) else {
                    index += 1;
                    continue;
                };
                index += 1;
                let (era, limit) = blocks.find(access.addr.0);
                eras.push(era);
                let image = image_at(access.pc);
                for pointer in &sighting.pointers {
                    let Some(object) = object(&image, pointer.to.0, &pointer.ty) else { continue };
                    if (object.start..object.end).contains(&access.addr.0) && object.end <= limit {
                        stated.entry(era).or_default().push(object);
                    }
                }
            }
        }
        let known = stated.into_iter().map(|(era, objects)| (era, agreed(objects))).collect();
        let objects = Objects { known };
        let mut eras = eras.into_iter();
        for step in steps.iter_mut() {
            for sighting in &mut step.sightings {
                let Some(era) = eras.next() else { break };
                let addr = step.accesses[sighting.access].addr;
                sighting.object = objects.name(era, addr, &[]);
            }
        }
        objects
    }

    fn at(&self, era: Era, addr: VirtAddr) -> Option<&Object> {
        let objects = self.known.get(&era)?;
        let at = objects.partition_point(|object| object.start <= addr.0).checked_sub(1)?;
        Some(&objects[at]).filter(|object| addr.0 < object.end)
    }

    fn name(&self, era: Era, addr: VirtAddr, whole: &[TypeId]) -> Option<String> {
        let object = self.at(era, addr)?;
        let types = object.image.types();
        let path = types.path_to(object.ty, addr.0 - object.start, whole);
        let name = types.display(object.ty);
        match path.strip_prefix('.') {
            Some(member) => Some(format!("{member} of {name}")),
            None if path.is_empty() => Some(name),
            None => None,
        }
    }

    /// The object of one of the types of `kinds` that begins at an address, where at all times there was no
    /// other one.
    #[must_use]
    pub fn of_kind(&self, addr: VirtAddr, kinds: &[TypeId]) -> Option<String> {
        let is = |era: &Era| {
            let object = self.at(*era, addr)?;
            let types = object.image.types();
            let offset = addr.0 - object.start;
            let begins = kinds.iter().any(|kind| has_part(types, object.ty, offset, *kind, DEPTH_MAX));
            begins.then(|| self.name(*era, addr, kinds)).flatten()
        };
        let mut names = self.known.keys().filter_map(is);
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }
}

fn object(image: &Arc<Image>, start: u64, name: &str) -> Option<Object> {
    let types = image.types();
    let ty = match name.split_once(' ') {
        Some(("struct" | "union", name)) => types.structure(name),
        _ => types.named(name),
    }?;
    let size = types.size(ty).filter(|size| *size > 0)?;
    Some(Object { start, end: start.checked_add(size)?, image: image.clone(), ty })
}

/// The largest of each group of statements about overlapping memory, if the others are parts of it.
fn agreed(mut stated: Vec<Object>) -> Vec<Object> {
    stated.sort_by_key(|object| (object.start, std::cmp::Reverse(object.end)));
    let mut known: Vec<Object> = Vec::new();
    let mut rest = stated.into_iter().peekable();
    while let Some(first) = rest.next() {
        let (mut end, mut agree) = (first.end, true);
        while let Some(next) = rest.next_if(|next| next.start < end) {
            agree &= first.contains(&next);
            end = end.max(next.end);
        }
        if agree {
            known.push(first);
        }
    }
    known
}

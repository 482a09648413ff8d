//! Accesses seen while they happen: with the stack, and with the pointers that the code has in its variables.
//!
//! The machine stops before the instructions that were asked for. What is in its log by then becomes accesses
//! of the step first, so that what the instruction does is known by its index. Such a stop fires no hook, is
//! no preemption point and leaves the weighing of accesses as it was: the execution stays the same.
//!
//! Only pointers with the value that the instruction itself adds its offset to are named: those that it goes
//! through.
//!
//! Limits: in a step only the first visits to an instruction are seen. What the kernel does for a program
//! counts as done by the instruction that called it, and is seen there.

use super::StepBuilder;
use crate::elf::code;
use crate::elf::image::{Image, Space};
use crate::elf::location::{self, Home, Surroundings};
use crate::elf::types::{Type, TypeId, Types};
use crate::stack::frame_address;
use crate::state::{Memory as _, Registers};
use crate::view::{View, registers};
use machine::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Occurrence, PhysAddr, Pointer, Sighting, Stack, Step, ThreadId, VirtAddr};

/// How many visits to one instruction in one step are looked at: a loop repeats itself.
const VISITS_MAX: u32 = 256;

/// How many accesses of one step are seen again, each with a stack.
const SIGHTINGS_MAX: usize = 20_000;

/// What is to be seen, and what was in this step.
#[derive(Clone, Debug, Default)]
pub(super) struct Sights {
    pcs: Arc<BTreeSet<u64>>,
    seen: Vec<Visit>,
    /// Global variables that point to structures.
    globals: Arc<Vec<Global>>,
    /// How often each instruction was visited in this step.
    visits: BTreeMap<u64, u32>,
    /// Words that were written in this step by code that does not count, and before which access.
    hidden: Vec<(usize, u64)>,
    /// Words that such code has written last, before this step.
    hidden_before: BTreeSet<u64>,
}

/// Bytes in the words that hidden writes are known by.
const WORD: u64 = 4;

fn words(phys: PhysAddr, size: u32) -> std::ops::RangeInclusive<u64> {
    phys.0 / WORD..=(phys.0 + u64::from(size.max(1)) - 1) / WORD
}

/// A variable with a fixed address that points to a structure.
#[derive(Clone, Debug)]
struct Global {
    addr: VirtAddr,
    image: Arc<Image>,
    to: TypeId,
}

/// A visit to one of the instructions.
#[derive(Clone, Debug)]
struct Visit {
    pc: VirtAddr,
    thread: Option<ThreadId>,
    accesses_before: usize,
    stack: Stack,
    pointers: Vec<Pointer>,
}

impl Sights {
    pub fn begin_step(&mut self) {
        self.seen.clear();
        self.visits.clear();
        self.hidden.clear();
    }

    pub fn looks(&self) -> bool {
        !self.pcs.is_empty()
    }

    /// Takes note of a write by code that does not count, before the access of that index.
    pub fn hide(&mut self, before: usize, phys: PhysAddr, size: u32) {
        self.hidden.extend(words(phys, size).map(|word| (before, word)));
    }

    /// The accesses of the step that were seen: each was made by the last visit to its instruction before it.
    pub fn of(&mut self, step: &Step) -> Vec<Sighting> {
        let mut found = Vec::new();
        if !self.looks() {
            return found;
        }
        let Sights { hidden, hidden_before: last_hidden, seen: visits, .. } = self;
        let mut by_pc: BTreeMap<u64, Vec<&Visit>> = BTreeMap::new();
        for visit in visits.iter() {
            by_pc.entry(visit.pc.0).or_default().push(visit);
        }
        let mut hidden = std::mem::take(hidden).into_iter().peekable();
        let mut index = 0;
        for (thread, what) in step.occurrences() {
            let Occurrence::Access(access) = what else { continue };
            while let Some((_, word)) = hidden.next_if(|(before, _)| *before <= index) {
                last_hidden.insert(word);
            }
            let overwritten = words(access.phys, access.size).any(|word| last_hidden.contains(&word));
            if access.kind.writes() {
                for word in words(access.phys, access.size) {
                    last_hidden.remove(&word);
                }
            }
            let visits = by_pc.get(&access.pc.0).map_or(&[][..], Vec::as_slice);
            let before = visits.partition_point(|seen| seen.accesses_before <= index);
            let visit = visits[..before].iter().rev().find(|seen| seen.thread == Some(thread));
            if let Some(seen) = visit.filter(|_| found.len() < SIGHTINGS_MAX) {
                found.push(Sighting {
                    access: index,
                    stack: seen.stack.clone(),
                    pointers: seen.pointers.clone(),
                    object: None,
                    overwritten,
                });
            }
            index += 1;
        }
        last_hidden.extend(hidden.map(|(_, word)| word));
        found
    }
}

impl StepBuilder {
    /// From now on the accesses of the instructions at `pcs` are seen, with pointers that the code of
    /// `images` has.
    pub(crate) fn sight<'a>(&mut self, pcs: &[VirtAddr], images: impl Iterator<Item = &'a Arc<Image>>) {
        self.sights.pcs = Arc::new(pcs.iter().map(|pc| pc.0).collect());
        let mut globals = Vec::new();
        for image in images {
            for variable in image.all_variables() {
                if let Some(to) = structure_behind(image.types(), variable.ty) {
                    globals.push(Global { addr: VirtAddr(variable.address), image: image.clone(), to });
                }
            }
        }
        self.sights.globals = Arc::new(globals);
    }

    /// Whether any instructions are to be seen.
    pub(crate) fn looks(&self) -> bool {
        self.sights.looks()
    }

    pub(crate) fn sighted(&self) -> impl Iterator<Item = &u64> {
        self.sights.pcs.iter()
    }

    /// Whether the next instruction is to be seen this time.
    pub(crate) fn visits(&mut self, pc: u64) -> bool {
        if !self.sights.pcs.contains(&pc) {
            return false;
        }
        let visits = self.sights.visits.entry(pc).or_default();
        *visits += 1;
        *visits <= VISITS_MAX
    }

    /// The machine stands before an instruction that is to be seen, and the log was taken just before.
    pub(crate) fn see(&mut self, machine: &Machine, space: &Space, thread: Option<ThreadId>, stack: Stack) {
        let registers = registers(machine, self.cpu);
        let image = space.image_at(VirtAddr(registers.pc));
        let view = View { machine, cpu: self.cpu };
        let seen = Visit {
            pc: VirtAddr(registers.pc),
            thread,
            accesses_before: self.recorder.accesses.len(),
            stack,
            pointers: image
                .map(|image| pointers(image, &self.sights.globals, &registers, &view))
                .unwrap_or_default(),
        };
        self.sights.seen.push(seen);
    }
}

/// What a pointer of this type points to, if that is a structure.
fn structure_behind(types: &Types, id: TypeId) -> Option<TypeId> {
    let Type::Pointer { to, .. } = *types.get(types.strip(id)) else { return None };
    matches!(types.get(types.strip(to)), Type::Struct { .. }).then_some(to)
}

/// The pointers to structures that the next instruction goes through: variables that the code at pc can name,
/// global ones, and members of what these point to.
fn pointers(image: &Arc<Image>, globals: &[Global], registers: &Registers, view: &View<'_>) -> Vec<Pointer> {
    let (types, word) = (image.types(), image.architecture.word());
    let base = code::base_of_operand(image.architecture, registers, view).filter(|base| *base != 0);
    let Some(base) = base else { return Vec::new() };
    let of_image = globals.iter().filter(|global| Arc::ptr_eq(&global.image, image));
    let mut variables: Vec<(u64, TypeId)> = locals(image, registers, view);
    variables.extend(of_image.filter_map(|global| Some((view.read_uint(global.addr, word)?, global.to))));
    let mut found: BTreeSet<Pointer> = BTreeSet::new();
    let mut state = |value: u64, to: TypeId| {
        if value == base {
            found.insert(Pointer { to: VirtAddr(base), ty: types.display(to) });
        }
    };
    for (value, ty) in variables.into_iter().filter(|(value, _)| *value != 0) {
        state(value, ty);
        let Type::Struct { members, .. } = types.get(types.strip(ty)) else { continue };
        for member in members {
            if let Some(to) = structure_behind(types, member.ty)
                && let Some(behind) = view.read_uint(VirtAddr(value.wrapping_add(member.offset)), word)
            {
                state(behind, to);
            }
        }
    }
    found.into_iter().collect()
}

/// Values of the pointers to structures among the parameters and locals.
fn locals(image: &Image, registers: &Registers, view: &View<'_>) -> Vec<(u64, TypeId)> {
    let (pc, architecture) = (registers.pc, image.architecture);
    let function = image.function_at(VirtAddr(pc)).map(|id| image.get(id));
    let Some(subprogram) = function.and_then(|function| image.subprogram(function)) else {
        return Vec::new();
    };
    let around = Surroundings {
        cfa: frame_address(image, registers, view),
        frame_base: subprogram.frame_base.at(pc),
        initial: None,
    };
    let mut found = Vec::new();
    for local in subprogram.locals.iter().chain(&subprogram.parameters) {
        let visible = local.scope.iter().any(|range| range.contains(&pc));
        let Some(to) = structure_behind(image.types(), local.ty).filter(|_| visible) else { continue };
        let Some(expression) = local.location.at(pc) else { continue };
        let value = match location::evaluate(expression, architecture, registers, view, around) {
            Some(Home::Memory(addr)) => view.read_uint(addr, architecture.word()),
            Some(Home::Register(number)) => Some(registers.general[number]),
            Some(Home::Value(value)) => Some(value),
            None => None,
        };
        found.extend(value.map(|value| (value, to)));
    }
    found
}

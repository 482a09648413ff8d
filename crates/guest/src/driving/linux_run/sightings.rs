//! Races of a known run seen again, with stacks and with what lies there.
//!
//! A run is the same each time, so each access of a race is made again. The run stops before the instructions
//! in question; the first time that one of them is about to access the bytes in question, whoever does it is
//! noted with its stack. That is an access of the race or one just like it: the same instruction, the same
//! bytes.

use super::LinuxRun;
use super::watchpoints::Accessor;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use trace::{AccessKind, CpuId, VirtAddr};

/// An instruction, and the first byte that it accesses.
pub type Sight = (VirtAddr, VirtAddr);

#[derive(Debug, Default)]
pub struct Sightings {
    wanted: BTreeSet<Sight>,
    seen: BTreeMap<Sight, Accessor>,
    /// What lies at an address.
    objects: BTreeMap<VirtAddr, String>,
}

impl Sightings {
    pub(super) fn instructions(&self) -> impl Iterator<Item = u64> {
        self.wanted.iter().map(|(pc, _)| pc.0)
    }

    /// Who made an access, if it was seen.
    #[must_use]
    pub fn accessor(&self, sight: Sight) -> Option<&Accessor> {
        self.seen.get(&sight)
    }

    #[must_use]
    pub fn object(&self, addr: VirtAddr) -> Option<&str> {
        self.objects.get(&addr).map(String::as_str)
    }
}

impl LinuxRun {
    /// From now on these accesses are noted when they are first made.
    pub fn look_for(&mut self, wanted: BTreeSet<Sight>) {
        self.sightings = Some(Sightings { wanted, ..Sightings::default() });
        self.compile();
    }

    #[must_use]
    pub const fn sightings(&self) -> Option<&Sightings> {
        self.sightings.as_ref()
    }

    /// Looks at the instruction that is next.
    pub(super) fn sight(&mut self, cpu: CpuId, pc: VirtAddr) {
        let Some(mut sightings) = self.sightings.take() else { return };
        let next = self.next_access(cpu);
        // What a string instruction accesses is not known before.
        let is_next = |addr: VirtAddr| {
            next.is_none_or(|next| (next.addr..next.addr + next.size as u64).contains(&addr.0))
        };
        let here = (pc, VirtAddr(0))..=(pc, VirtAddr(u64::MAX));
        let met: Vec<Sight> =
            sightings.wanted.range(here.clone()).filter(|(_, addr)| is_next(*addr)).copied().collect();
        for sight in &met {
            let kind = next.map_or(AccessKind::Update, |next| next.kind);
            let accessor = self.accessor(cpu, pc, kind, false);
            let view = View { machine: &self.machine, cpu };
            if let Some(object) = self.running().describe(sight.1, &view) {
                sightings.objects.insert(sight.1, object);
            }
            sightings.seen.insert(*sight, accessor);
            sightings.wanted.remove(sight);
        }
        let last = !met.is_empty() && sightings.wanted.range(here).next().is_none();
        self.sightings = Some(sightings);
        if last {
            self.compile();
        }
    }
}

//! A kernel while it runs: where each processor's copy of the per-CPU variables is.
//!
//! Contract: learned once, from the memory of a guest that has booted; afterwards names need no memory.

use super::{Linux, with_offset};
use crate::state::Memory;
use std::sync::Arc;
use trace::{CpuId, Frame, Resolve, VirtAddr};

const PER_CPU_MAX: u8 = 64;

#[derive(Clone, Debug)]
pub struct Running {
    pub linux: Arc<Linux>,
    /// For each processor what is added to the address of a per-CPU symbol.
    per_cpu: Vec<u64>,
    /// The per-CPU symbols' own addresses.
    per_cpu_symbols: std::ops::Range<u64>,
}

impl Running {
    /// Reads what a booted guest with this many processors says.
    #[must_use]
    pub fn learn<M: Memory + ?Sized>(linux: &Arc<Linux>, cpus: u8, memory: &M) -> Self {
        let table = linux.address("__per_cpu_offset");
        let offset = |cpu: u8| memory.read_uint(table?.offset(8 * u64::from(cpu)), 8);
        let per_cpu = (0..cpus.min(PER_CPU_MAX)).map_while(offset).collect();
        let bound = |name| linux.address(name).map_or(0, |addr| addr.0);
        Running {
            linux: linux.clone(),
            per_cpu,
            per_cpu_symbols: bound("__per_cpu_start")..bound("__per_cpu_end"),
        }
    }

    /// Where a processor's copy of a per-CPU variable is.
    #[must_use]
    pub fn per_cpu(&self, name: &str, cpu: CpuId) -> Option<VirtAddr> {
        let mut named = self.linux.symbols.named(name);
        let symbol = named.find(|symbol| self.per_cpu_symbols.contains(&symbol.addr.0))?;
        Some(VirtAddr(symbol.addr.0.wrapping_add(*self.per_cpu.get(usize::from(cpu.0))?)))
    }

    /// Whose copy of which per-CPU variable an address is in, and how far.
    fn per_cpu_at(&self, addr: VirtAddr) -> Option<(CpuId, &super::symbols::Symbol, u64)> {
        self.per_cpu.iter().enumerate().find_map(|(cpu, base)| {
            let place = addr.0.wrapping_sub(*base);
            self.per_cpu_symbols.contains(&place).then_some(())?;
            let symbol = self.linux.symbols.at(VirtAddr(place))?;
            Some((CpuId(cpu as u8), symbol, place - symbol.addr.0))
        })
    }
}

impl Resolve for Running {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        self.linux.frames(pc)
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        if let Some((cpu, symbol, offset)) = self.per_cpu_at(addr) {
            return Some(format!("{} of {cpu}", with_offset(&symbol.name, offset)));
        }
        self.linux.data(addr)
    }
}

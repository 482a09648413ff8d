//! A kernel while it runs: where each processor's copy of the per-CPU variables is, and which modules are
//! loaded.
//!
//! Contract: learned once, from the memory of a guest that has booted and loaded its modules; afterwards
//! names and stacks need no more than that. A module that is loaded later is not known; learn again.

use super::modules::{self, Module};
use super::orc::Rule;
use super::symbols::Symbol;
use super::{Linux, with_offset};
use crate::state::Memory;
use std::ops::Range;
use std::sync::Arc;
use trace::{CpuId, Frame, Resolve, VirtAddr};

const CPUS_MAX: u8 = 64;

#[derive(Clone, Debug)]
pub struct Running {
    pub linux: Arc<Linux>,
    /// The loaded modules, by address.
    pub modules: Vec<Module>,
    /// For each processor the number that is added to the address of a per-CPU symbol.
    per_cpu: Vec<u64>,
    /// The range of the per-CPU symbols' own addresses.
    per_cpu_symbols: Range<u64>,
}

impl Running {
    /// Reads what a booted guest with this many processors says.
    #[must_use]
    pub fn learn<M: Memory + ?Sized>(linux: &Arc<Linux>, cpus: u8, memory: &M) -> Self {
        let table = linux.address("__per_cpu_offset");
        let offset = |cpu: u8| memory.read_uint(table?.offset(8 * u64::from(cpu)), 8);
        let per_cpu = (0..cpus.min(CPUS_MAX)).map_while(offset).collect();
        let bound = |name| linux.address(name).map_or(0, |addr| addr.0);
        Running {
            linux: linux.clone(),
            modules: modules::loaded(linux, memory),
            per_cpu,
            per_cpu_symbols: bound("__per_cpu_start")..bound("__per_cpu_end"),
        }
    }

    /// The address of a processor's copy of a per-CPU variable.
    #[must_use]
    pub fn per_cpu(&self, name: &str, cpu: CpuId) -> Option<VirtAddr> {
        let mut named = self.linux.symbols.named(name);
        let symbol = named.find(|symbol| self.per_cpu_symbols.contains(&symbol.addr.0))?;
        Some(VirtAddr(symbol.addr.0.wrapping_add(*self.per_cpu.get(usize::from(cpu.0))?)))
    }

    /// The processor, the per-CPU variable and the offset in it that an address is, if it is in a copy of
    /// one.
    #[must_use]
    pub fn per_cpu_at(&self, addr: VirtAddr) -> Option<(CpuId, &Symbol, u64)> {
        self.per_cpu.iter().enumerate().find_map(|(cpu, base)| {
            let place = addr.0.wrapping_sub(*base);
            self.per_cpu_symbols.contains(&place).then_some(())?;
            let symbol = self.linux.symbols.at(VirtAddr(place))?;
            Some((CpuId(cpu as u8), symbol, place - symbol.addr.0))
        })
    }

    #[must_use]
    pub fn module_at(&self, addr: VirtAddr) -> Option<&Module> {
        self.modules.iter().find(|module| module.contains(addr))
    }

    /// The function of the kernel or of a module, and where it begins.
    #[must_use]
    pub fn function_at(&self, pc: VirtAddr) -> Option<&Symbol> {
        match self.module_at(pc) {
            Some(module) => module.symbol_at(pc).filter(|symbol| symbol.is_code()),
            None => self.linux.function_at(pc),
        }
    }

    /// The address of a function or variable, of the kernel first and then of modules.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<VirtAddr> {
        let modules = || self.modules.iter().find_map(|module| module.symbols.address(name));
        self.linux.address(name).or_else(modules)
    }

    #[must_use]
    pub fn is_code(&self, addr: VirtAddr) -> bool {
        self.linux.sections.is_code(addr) || self.modules.iter().any(|module| module.text.contains(&addr.0))
    }

    /// How the caller of an instruction is found.
    #[must_use]
    pub fn rule(&self, pc: VirtAddr) -> Option<Rule> {
        match self.module_at(pc) {
            Some(module) => module.orc.rule(pc),
            None if self.linux.sections.is_code(pc) => self.linux.orc.rule(pc),
            None => None,
        }
    }
}

impl Resolve for Running {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        let Some(module) = self.module_at(pc) else { return self.linux.frames(pc) };
        let function = self.function_at(pc).map(|symbol| format!("{} [{}]", symbol.name, module.name));
        vec![Frame { pc, function, file: None, line: None, interrupted: false }]
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        if let Some((cpu, symbol, offset)) = self.per_cpu_at(addr) {
            let ty = self.linux.btf().and_then(|btf| Some((btf, btf.per_cpu(&symbol.name)?)));
            return Some(match ty {
                Some((btf, ty)) => format!("{}{} of {cpu}", symbol.name, btf.types.path(ty, offset)),
                None => format!("{} of {cpu}", with_offset(&symbol.name, offset)),
            });
        }
        if let Some(module) = self.module_at(addr) {
            let symbol = module.symbol_at(addr)?;
            return Some(format!("{} [{}]", with_offset(&symbol.name, addr.0 - symbol.addr.0), module.name));
        }
        self.linux.data(addr)
    }
}

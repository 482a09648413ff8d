//! Which words of memory decide where an address is: the page-table entries that a walk reads.
//!
//! The processor reads them without an instruction that says so, hence they are not in the log. Whoever wants
//! to know what an access depended on asks here, with the page directory of that time.
//!
//! Limits: the two-level tables of 32-bit mode. Under any other kind of paging nothing is read.

use crate::Machine;
use crate::x86::state::{cr0, cr4};
use trace::{CpuId, PhysAddr, VirtAddr};

const PRESENT: u32 = 1;
const LARGE: u32 = 1 << 7;
/// Bytes of an entry.
pub const ENTRY_BYTES: u32 = 4;
/// Bytes that the lowest entry speaks of.
pub const PAGE_BYTES: u64 = 4096;

impl Machine {
    /// The entries that a walk for `address` reads in the address space whose CR3 is `directory`, the topmost
    /// first.
    #[must_use]
    pub fn page_entries(&self, id: CpuId, directory: u64, address: VirtAddr) -> [Option<PhysAddr>; 2] {
        let cpu = self.cpu(id);
        if cpu.cr0 & cr0::PG == 0 || cpu.cr4 & cr4::PAE != 0 {
            return [None, None];
        }
        let above = PhysAddr(directory & 0xffff_f000 | address.0 >> 20 & 0xffc);
        let entry = self.memory.read_u32(above);
        if entry & PRESENT == 0 || (entry & LARGE != 0 && cpu.cr4 & cr4::PSE != 0) {
            return [Some(above), None];
        }
        [Some(above), Some(PhysAddr(u64::from(entry & 0xffff_f000) | address.0 >> 10 & 0xffc))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_levels_are_read() {
        let mut machine = Machine::flat32(1 << 20);
        let at = VirtAddr(0x0040_3abc);
        assert_eq!(machine.page_entries(CpuId(0), 0x1000, at), [None, None]);
        machine.cpu_mut(CpuId(0)).cr0 |= cr0::PG;
        assert_eq!(machine.page_entries(CpuId(0), 0x1000, at), [Some(PhysAddr(0x1004)), None]);
        machine.memory.write(PhysAddr(0x1004), &0x2001u32.to_le_bytes());
        let both = [Some(PhysAddr(0x1004)), Some(PhysAddr(0x200c))];
        assert_eq!(machine.page_entries(CpuId(0), 0x1000, at), both);
        machine.cpu_mut(CpuId(0)).cr4 |= cr4::PSE;
        machine.memory.write(PhysAddr(0x1004), &0x0040_0081u32.to_le_bytes());
        assert_eq!(machine.page_entries(CpuId(0), 0x1000, at), [Some(PhysAddr(0x1004)), None]);
    }
}

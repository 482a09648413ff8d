//! Control, debug and model-specific registers, descriptor-table registers, HLT, CLI, STI, RDTSC, INVLPG and
//! the like.

use super::cpuid::CR4_ALLOWED;
use super::exec::Exec;
use super::flags;
use super::paging::{PHYSICAL_BITS, bad_pointers};
use super::state::{Activity, Seg, Segment, Table, canonical, cr0, cr4, efer, reg};
use super::trap::{Outcome, Trap};
use crate::events::Happening;
use crate::stop::{Kinds, Stop};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use trace::{PhysAddr, VirtAddr};

fn privileged(x: &Exec) -> Outcome<()> {
    if x.cpu.cpl() == 0 { Ok(()) } else { Err(Trap::GP0) }
}

/// MOV to or from a control or debug register.
pub fn mov(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    privileged(x)?;
    let (to, from) = (instr.op0_register(), instr.op1_register());
    if to.is_cr() {
        let value = x.get(from);
        return write_control(x, to, value);
    }
    if to.is_dr() {
        let value = x.get(from);
        return write_debug(x, to, value);
    }
    let value = match from {
        Register::CR0 => x.cpu.cr0,
        Register::CR2 => x.cpu.cr2,
        Register::CR3 => x.cpu.cr3,
        Register::CR4 => x.cpu.cr4,
        Register::CR8 => read_task_priority(x),
        _ if from.is_dr() => x.cpu.dr[debug_index(x, from)?],
        _ => return Err(Trap::UD),
    };
    x.set(to, value);
    Ok(())
}

fn debug_index(x: &mut Exec, register: Register) -> Outcome<usize> {
    if x.cpu.dr[7] & 0x2000 != 0 {
        // General detect: the access itself is trapped.
        x.cpu.dr[7] &= !0x2000;
        x.cpu.dr[6] |= 0x2000;
        return Err(Trap::DB);
    }
    let index = register.number();
    if matches!(index, 4 | 5) {
        if x.cpu.cr4 & cr4::DE != 0 {
            return Err(Trap::UD);
        }
        return Ok(index + 2);
    }
    Ok(index)
}

fn write_debug(x: &mut Exec, register: Register, value: u64) -> Outcome<()> {
    let index = debug_index(x, register)?;
    if index >= 6 && value >> 32 != 0 {
        return Err(Trap::GP0);
    }
    x.cpu.dr[index] = match index {
        6 => value & 0xe00f | 0xffff_0ff0,
        7 => value & 0xffff_2fff | 0x400,
        _ => value,
    };
    x.leave = true;
    Ok(())
}

fn write_control(x: &mut Exec, register: Register, value: u64) -> Outcome<()> {
    match register {
        Register::CR0 => {
            if value >> 32 != 0 {
                return Err(Trap::GP0);
            }
            let value = value & 0xe005_003f | cr0::ET;
            let bad_paging = value & cr0::PG != 0 && value & cr0::PE == 0;
            let bad_cache = value & cr0::NW != 0 && value & cr0::CD == 0;
            if bad_paging || bad_cache {
                return Err(Trap::GP0);
            }
            switch_long_mode(x, value)?;
            set_cr0(x, value);
        }
        Register::CR2 => x.cpu.cr2 = value,
        Register::CR3 => {
            if value >> PHYSICAL_BITS != 0 || loads_bad_pointers(x, x.cpu.cr0, x.cpu.cr4, value) {
                return Err(Trap::GP0);
            }
            x.events.note_translations(x.cpu, x.memory, &x.engine.code);
            x.events.push(x.now, Happening::AddressSpace { old: x.cpu.cr3, new: value });
            x.cpu.cr3 = value & !7;
            x.leave = true;
            if x.stops.on.has(Kinds::ADDRESS_SPACE) {
                x.stop_after(Stop::AddressSpace);
            }
        }
        Register::CR4 => {
            if value & (cr4::VME | cr4::PVI) != 0 {
                return Err(Trap::Unsupported("virtual-8086 extensions in CR4"));
            }
            let leaves_pae = x.cpu.long() && value & cr4::PAE == 0;
            let loads = (x.cpu.cr4 ^ value) & (cr4::PAE | cr4::PGE | cr4::PSE) != 0;
            if value & !(CR4_ALLOWED | cr4::MCE) != 0
                || leaves_pae
                || loads && loads_bad_pointers(x, x.cpu.cr0, value, x.cpu.cr3)
            {
                return Err(Trap::GP0);
            }
            x.events.note_translations(x.cpu, x.memory, &x.engine.code);
            x.cpu.cr4 = value;
            x.leave = true;
        }
        Register::CR8 => {
            if value >> 4 != 0 {
                return Err(Trap::GP0);
            }
            x.cpu.cr8 = value;
            if x.board.lapic_enabled(x.id) {
                x.board.mmio_write(x.now, x.id, TASK_PRIORITY, 4, value << 4);
            }
            x.leave = true;
        }
        _ => return Err(Trap::UD),
    }
    Ok(())
}

/// The local APIC's register behind CR8.
const TASK_PRIORITY: PhysAddr = PhysAddr(0xfee0_0080);

fn read_task_priority(x: &mut Exec) -> u64 {
    if x.board.lapic_enabled(x.id) {
        x.board.mmio_read(x.now, x.id, TASK_PRIORITY, 4) >> 4 & 15
    } else {
        x.cpu.cr8
    }
}

/// With PAE and without long mode, the topmost table entries are checked when they become valid.
fn loads_bad_pointers(x: &Exec, cr0: u64, cr4: u64, cr3: u64) -> bool {
    cr0 & cr0::PG != 0 && cr4 & cr4::PAE != 0 && x.cpu.efer & efer::LME == 0 && bad_pointers(x.memory, cr3)
}

/// Switching paging on or off enters or leaves long mode, if it is wanted.
fn switch_long_mode(x: &mut Exec, new_cr0: u64) -> Outcome<()> {
    if (x.cpu.cr0 ^ new_cr0) & cr0::PG == 0 {
        return Ok(());
    }
    if new_cr0 & cr0::PG == 0 {
        if x.cpu.long_code() {
            return Err(Trap::GP0);
        }
        x.events.note_translations(x.cpu, x.memory, &x.engine.code);
        x.cpu.efer &= !efer::LMA;
    } else if x.cpu.efer & efer::LME != 0 {
        if x.cpu.cr4 & cr4::PAE == 0 || x.cpu.seg(Seg::Cs).has(Segment::LONG) {
            return Err(Trap::GP0);
        }
        x.events.note_translations(x.cpu, x.memory, &x.engine.code);
        x.cpu.efer |= efer::LMA;
    } else if loads_bad_pointers(x, new_cr0, x.cpu.cr4, x.cpu.cr3) {
        return Err(Trap::GP0);
    }
    Ok(())
}

fn set_cr0(x: &mut Exec, value: u64) {
    if (x.cpu.cr0 ^ value) & (cr0::PG | cr0::PE | cr0::WP) != 0 {
        x.events.note_translations(x.cpu, x.memory, &x.engine.code);
        x.leave = true;
    }
    x.cpu.cr0 = value;
    x.events.push(x.now, Happening::Mode { cr0: value, cpl: x.cpu.cpl() });
}

/// LMSW, SMSW, CLTS.
pub fn machine_status(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    match instr.mnemonic() {
        Mnemonic::Smsw => match instr.op_kind(0) {
            OpKind::Register => {
                let value = x.cpu.cr0;
                x.set(instr.op0_register(), value);
            }
            _ => {
                let (seg, offset) = x.address(instr);
                x.store(seg, offset, 2, x.cpu.cr0)?;
            }
        },
        Mnemonic::Lmsw => {
            privileged(x)?;
            let value = x.read(instr, 0)? & 15;
            // PE can be set this way but not cleared.
            let value = x.cpu.cr0 & !0xe | value | x.cpu.cr0 & cr0::PE;
            set_cr0(x, value);
        }
        _ => {
            privileged(x)?;
            let value = x.cpu.cr0 & !cr0::TS;
            set_cr0(x, value);
        }
    }
    Ok(())
}

/// LGDT, LIDT, SGDT, SIDT.
pub fn table(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (seg, offset) = x.address(instr);
    let m = flags::mask(x.address_size(instr));
    let base_at = offset.wrapping_add(2) & m;
    let bytes = if x.cpu.long_code() { 8 } else { 4 };
    match instr.mnemonic() {
        Mnemonic::Sgdt | Mnemonic::Sidt => {
            let table = if instr.mnemonic() == Mnemonic::Sgdt { x.cpu.gdtr } else { x.cpu.idtr };
            x.probe_write(seg, base_at, bytes)?;
            x.store(seg, offset, 2, table.limit.into())?;
            x.store(seg, base_at, bytes, table.base)
        }
        _ => {
            privileged(x)?;
            let limit = x.load(seg, offset, 2)? as u16;
            let base = x.load(seg, base_at, bytes)?;
            if !canonical(base) {
                return Err(Trap::GP0);
            }
            // With a 16-bit operand size only 24 bits of the base count.
            let small = matches!(instr.code(), iced_x86::Code::Lgdt_m1632_16 | iced_x86::Code::Lidt_m1632_16);
            let table = Table { base: if small { base & 0xff_ffff } else { base }, limit };
            if instr.mnemonic() == Mnemonic::Lgdt {
                x.cpu.gdtr = table;
            } else {
                x.cpu.idtr = table;
            }
            Ok(())
        }
    }
}

/// CLI and STI.
pub fn interrupt_flag(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let old = x.cpu.flags.other;
    if x.cpu.protected() && x.cpu.cpl() > ((old & flags::IOPL) >> 12) as u8 {
        return Err(Trap::GP0);
    }
    let on = instr.mnemonic() == Mnemonic::Sti;
    x.cpu.flags.put(flags::IF, on);
    if on && old & flags::IF == 0 {
        x.shadow();
    }
    x.interrupt_flag_changed(old);
    Ok(())
}

/// HLT.
pub fn halt(x: &mut Exec) -> Outcome<()> {
    privileged(x)?;
    x.cpu.activity = Activity::Halted;
    x.leave = true;
    if x.stops.on.has(Kinds::HALT) {
        x.stop_after(Stop::Halt);
    }
    Ok(())
}

/// PAUSE. To Intel's processors it is one with REX.B too, with which its opcode alone is that of XCHG with R8.
pub fn pause(x: &mut Exec) -> Outcome<()> {
    if x.stops.on.has(Kinds::PAUSE) {
        x.stop_after(Stop::Pause);
    }
    Ok(())
}

/// INVLPG. Translations are always current, so only watchers are notified.
pub fn invalidate(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    privileged(x)?;
    let (seg, offset) = x.address(instr);
    let linear = x.segment_base(seg).wrapping_add(offset) & x.linear_mask();
    x.events.push(x.now, Happening::InvalidatePage(VirtAddr(linear)));
    Ok(())
}

/// WBINVD, INVD: there are no caches to flush.
pub fn caches(x: &mut Exec) -> Outcome<()> {
    privileged(x)
}

/// RDTSC.
pub fn time_stamp(x: &mut Exec) -> Outcome<()> {
    if x.cpu.cr4 & cr4::TSD != 0 && x.cpu.cpl() != 0 {
        return Err(Trap::GP0);
    }
    let now = x.now.wrapping_add(x.cpu.msrs.tsc_offset);
    x.set_sized(reg::AX, 4, now);
    x.set_sized(reg::DX, 4, now >> 32);
    Ok(())
}

mod msr {
    pub const TSC: u32 = 0x10;
    pub const APIC_BASE: u32 = 0x1b;
    pub const BIOS_SIGNATURE: u32 = 0x8b;
    pub const MTRR_CAP: u32 = 0xfe;
    pub const SYSENTER_CS: u32 = 0x174;
    pub const SYSENTER_ESP: u32 = 0x175;
    pub const SYSENTER_EIP: u32 = 0x176;
    pub const MISC_ENABLE: u32 = 0x1a0;
    pub const PAT: u32 = 0x277;
    pub const MTRR_DEFAULT: u32 = 0x2ff;
    pub const MTRR_VARIABLE: u32 = 0x200;
    pub const EFER: u32 = 0xc000_0080;
    pub const STAR: u32 = 0xc000_0081;
    pub const LSTAR: u32 = 0xc000_0082;
    pub const CSTAR: u32 = 0xc000_0083;
    pub const SFMASK: u32 = 0xc000_0084;
    pub const FS_BASE: u32 = 0xc000_0100;
    pub const GS_BASE: u32 = 0xc000_0101;
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
    pub const MTRR_FIXED: [u32; 11] =
        [0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f];
}

/// RDMSR and WRMSR. A register the processor does not have is a general protection fault.
pub fn model_specific(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    privileged(x)?;
    let number = x.cpu.regs[reg::CX] as u32;
    let value = x.get_sized(reg::DX, 4) << 32 | x.get_sized(reg::AX, 4);
    let now = x.now;
    if instr.mnemonic() == Mnemonic::Rdmsr {
        let m = &x.cpu.msrs;
        let value = match number {
            msr::TSC => now.wrapping_add(m.tsc_offset),
            msr::BIOS_SIGNATURE | msr::MTRR_CAP => 0,
            _ => *slot(x, number).ok_or(Trap::GP0)?,
        };
        x.set_sized(reg::AX, 4, value);
        x.set_sized(reg::DX, 4, value >> 32);
        return Ok(());
    }
    match number {
        msr::TSC => x.cpu.msrs.tsc_offset = value.wrapping_sub(now),
        msr::BIOS_SIGNATURE => {}
        msr::APIC_BASE => {
            if value & !0xffff_f900 != 0 {
                return Err(Trap::GP0);
            }
            if value & 0xffff_f000 != 0xfee0_0000 {
                return Err(Trap::Unsupported("moving the local APIC"));
            }
            // Whether this is the bootstrap processor is not the program's to say.
            x.cpu.msrs.apic_base = value & !0x100 | x.cpu.msrs.apic_base & 0x100;
            x.board.set_lapic_enabled(x.id, value & 0x800 != 0);
        }
        msr::EFER => write_efer(x, value)?,
        _ => {
            let address = matches!(
                number,
                msr::SYSENTER_ESP
                    | msr::SYSENTER_EIP
                    | msr::LSTAR
                    | msr::CSTAR
                    | msr::FS_BASE
                    | msr::GS_BASE
                    | msr::KERNEL_GS_BASE
            );
            if address && !canonical(value) || number == msr::SFMASK && value >> 32 != 0 {
                return Err(Trap::GP0);
            }
            *slot(x, number).ok_or(Trap::GP0)? = value;
            if matches!(number, msr::FS_BASE | msr::GS_BASE) {
                x.leave = true;
            }
        }
    }
    Ok(())
}

fn write_efer(x: &mut Exec, value: u64) -> Outcome<()> {
    let changed = x.cpu.efer ^ value;
    if value & !(efer::SCE | efer::LME | efer::LMA | efer::NXE) != 0
        || changed & efer::LME != 0 && x.cpu.cr0 & cr0::PG != 0
    {
        return Err(Trap::GP0);
    }
    x.events.note_translations(x.cpu, x.memory, &x.engine.code);
    // Whether long mode is active is not the program's to say.
    x.cpu.efer = value & !efer::LMA | x.cpu.efer & efer::LMA;
    x.leave = true;
    Ok(())
}

/// Registers that merely hold what was written.
fn slot<'a>(x: &'a mut Exec<'_>, number: u32) -> Option<&'a mut u64> {
    let m = &mut x.cpu.msrs;
    Some(match number {
        msr::APIC_BASE => &mut m.apic_base,
        msr::SYSENTER_CS => &mut m.sysenter_cs,
        msr::SYSENTER_ESP => &mut m.sysenter_esp,
        msr::SYSENTER_EIP => &mut m.sysenter_eip,
        msr::MISC_ENABLE => &mut m.misc_enable,
        msr::PAT => &mut m.pat,
        msr::MTRR_DEFAULT => &mut m.mtrr_default,
        msr::EFER => &mut x.cpu.efer,
        msr::STAR => &mut m.star,
        msr::LSTAR => &mut m.lstar,
        msr::CSTAR => &mut m.cstar,
        msr::SFMASK => &mut m.sfmask,
        msr::FS_BASE => &mut x.cpu.segments[Seg::Fs as usize].base,
        msr::GS_BASE => &mut x.cpu.segments[Seg::Gs as usize].base,
        msr::KERNEL_GS_BASE => &mut m.kernel_gs_base,
        n @ msr::MTRR_VARIABLE..0x210 => &mut m.mtrr_variable[(n - msr::MTRR_VARIABLE) as usize],
        n => &mut m.mtrr_fixed[msr::MTRR_FIXED.iter().position(|&f| f == n)?],
    })
}

//! IN and OUT, with the I/O permission map.

use super::exec::Exec;
use super::flags;
use super::state::reg;
use super::trap::{Outcome, Trap};
use crate::events::Happening;
use crate::stop::Stop;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

impl Exec<'_> {
    /// May the program use this port? By IOPL, else by the bit map in the task state segment.
    pub(crate) fn check_port(&mut self, port: u16, size: usize) -> Outcome<()> {
        if !self.cpu.protected() || self.cpu.cpl() <= ((self.cpu.flags.other & flags::IOPL) >> 12) as u8 {
            return Ok(());
        }
        let tr = self.cpu.tr;
        if !tr.usable() || tr.kind() & 8 == 0 || tr.limit < 0x67 {
            return Err(Trap::GP0);
        }
        let map = self.system_load(tr.base + 0x66, 2)?;
        let at = map + u64::from(port >> 3);
        if at + 1 > tr.limit.into() {
            return Err(Trap::GP0);
        }
        let bits = self.system_load(tr.base + at, 2)?;
        if bits >> (port & 7) & ((1 << size) - 1) != 0 { Err(Trap::GP0) } else { Ok(()) }
    }

    fn port_done(&mut self, port: u16, size: usize, write: bool, value: u32) {
        self.leave = true;
        if self.events.ports {
            self.events.push(self.now, Happening::Port { port, size: size as u8, write, value });
        }
        if self.stops.ports.iter().any(|range| range.contains(&port)) {
            self.stop_after(Stop::Port { port, size: size as u8, write, value });
        }
    }

    /// IN without checks.
    pub(crate) fn port_in(&mut self, port: u16, size: usize) -> u32 {
        let value = self.board.port_read(self.now, self.id, port, size as u8) & flags::mask(size) as u32;
        self.port_done(port, size, false, value);
        value
    }

    /// OUT without checks.
    pub(crate) fn port_out(&mut self, port: u16, size: usize, value: u32) {
        let value = value & flags::mask(size) as u32;
        self.board.port_write(self.now, self.id, port, size as u8, value);
        self.port_done(port, size, true, value);
    }
}

/// IN and OUT.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let out = instr.mnemonic() == Mnemonic::Out;
    let (port_at, data_at) = if out { (0, 1) } else { (1, 0) };
    let port = match instr.op_kind(port_at) {
        OpKind::Immediate8 => u16::from(instr.immediate8()),
        _ => x.get(Register::DX) as u16,
    };
    let size = instr.op_register(data_at).size();
    x.check_port(port, size)?;
    if out {
        let value = x.get_sized(reg::AX, size) as u32;
        x.port_out(port, size, value);
    } else {
        let value = x.port_in(port, size);
        x.set_sized(reg::AX, size, value.into());
    }
    Ok(())
}

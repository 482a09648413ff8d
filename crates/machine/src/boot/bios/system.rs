//! INT 08h, 14h, 15h, 18h, 19h, 1Ah and 70h: time, memory, the serial port, and starting over.

use trace::PhysAddr;

use super::{FIRST_DISK, Service};
use crate::boot::disk::{BOOT_ADDRESS, is_bootable};
use crate::boot::rom;
use crate::x86::state::{Seg, Segment, reg};

/// "SMAP".
const MAP_SIGNATURE: u32 = 0x534d_4150;
/// Ticks of the interval timer from midnight to midnight.
const TICKS_PER_DAY: u32 = 0x1800b0;
const COM1: u16 = 0x3f8;
const MICROS: u64 = 1_000_000;
const NO_DISK: &str = "No bootable disk.\r\n";

impl Service<'_> {
    fn ticks(&self) -> u32 {
        self.memory.read_u32(PhysAddr(0x46c))
    }

    pub(super) fn timer_tick(&mut self) {
        let next = self.ticks() + 1;
        if next >= TICKS_PER_DAY {
            self.memory.write_u32(PhysAddr(0x46c), 0);
            self.set_bda8(0x70, self.bda8(0x70).wrapping_add(1));
        } else {
            self.memory.write_u32(PhysAddr(0x46c), next);
        }
        self.end_of_interrupt(false);
    }

    pub(super) fn clock_interrupt(&mut self) {
        self.out(0x70, 0x0c);
        self.input(0x71);
        self.end_of_interrupt(true);
    }

    pub(super) fn serial(&mut self) {
        let port = match self.get16(reg::DX) {
            0 => COM1,
            1 => 0x2f8,
            _ => return,
        };
        match self.high(reg::AX) {
            0x00 => {
                let parameters = self.low(reg::AX);
                let divisor: u16 = [1047, 768, 384, 192, 96, 48, 24, 12][usize::from(parameters >> 5)];
                self.out(port + 3, 0x80);
                self.out(port, divisor as u8);
                self.out(port + 1, (divisor >> 8) as u8);
                self.out(port + 3, parameters & 0x1f);
                self.out(port + 1, 0);
            }
            0x01 => self.out(port, self.low(reg::AX)),
            0x02 => {
                let status = self.input(port + 5);
                if status & 1 == 0 {
                    self.set8_high(reg::AX, 0x80);
                } else {
                    let byte = self.input(port);
                    self.set16(reg::AX, u16::from_be_bytes([status & 0x1e, byte]));
                }
                return;
            }
            _ => {}
        }
        let (line, modem) = (self.input(port + 5), self.input(port + 6));
        if self.high(reg::AX) != 0x01 {
            self.set8(reg::AX, modem);
        }
        self.set8_high(reg::AX, line);
    }

    pub(super) fn system(&mut self) {
        match (self.high(reg::AX), self.low(reg::AX)) {
            (0xe8, 0x20) if self.get32(reg::DX) == MAP_SIGNATURE && self.get32(reg::CX) >= 20 => {
                self.map_entry()
            }
            (0xe8, 0x01) => {
                let extended = self.memory.size().saturating_sub(1 << 20) / 1024;
                let below_16m = extended.min(15 << 10) as u16;
                let above = (self.memory.size().saturating_sub(16 << 20) >> 16).min(0xffff) as u16;
                for (register, value) in
                    [(reg::AX, below_16m), (reg::BX, above), (reg::CX, below_16m), (reg::DX, above)]
                {
                    self.set16(register, value);
                }
                self.return_carry(false);
            }
            (0x88, _) => {
                let extended = self.memory.size().saturating_sub(1 << 20) / 1024;
                self.set16(reg::AX, extended.min(0xfc00) as u16);
                self.return_carry(false);
            }
            (0x24, function @ 0..=3) => {
                self.set8_high(reg::AX, 0);
                match function {
                    2 => {
                        let open = self.input(0x92) >> 1 & 1;
                        self.set8(reg::AX, open);
                    }
                    3 => self.set16(reg::BX, 3),
                    _ => {
                        let value = self.input(0x92) & !3;
                        self.out(0x92, value | function << 1);
                    }
                }
                self.return_carry(false);
            }
            (0x86, _) => self.delay(),
            (0x87, _) => self.move_block(),
            (0xc0, _) => {
                self.cpu.segments[Seg::Es as usize] = Segment::real(rom::ROM_SEGMENT);
                self.set16(reg::BX, rom::configuration());
                self.set8_high(reg::AX, 0);
                self.return_carry(false);
            }
            (0xc1, _) => {
                self.cpu.segments[Seg::Es as usize] = Segment::real((rom::EBDA >> 4) as u16);
                self.return_carry(false);
            }
            _ => self.refuse(),
        }
    }

    fn map_entry(&mut self) {
        let map = rom::memory_map(self.memory.size());
        let index = self.get32(reg::BX) as usize;
        let Some(range) = map.get(index) else { return self.refuse() };
        let buffer = self.far(Seg::Es, self.get16(reg::DI));
        self.memory.write(buffer, &range.to_bytes());
        self.set32(reg::AX, MAP_SIGNATURE);
        self.set32(reg::CX, 20);
        self.set32(reg::BX, if index + 1 < map.len() { index as u32 + 1 } else { 0 });
        self.return_carry(false);
    }

    /// Waits for CX:DX microseconds. The data area remembers until when.
    fn delay(&mut self) {
        let micros = self.board.clock().ticks(self.now, MICROS);
        if self.bda8(0xa0) == 0 {
            let interval = u64::from(self.get16(reg::CX)) << 16 | u64::from(self.get16(reg::DX));
            self.memory.write_u32(PhysAddr(0x49c), (micros + interval) as u32);
            self.set_bda8(0xa0, 1);
        }
        let left = self.memory.read_u32(PhysAddr(0x49c)).wrapping_sub(micros as u32) as i32;
        if left > 0 {
            self.wait(0x15);
        } else {
            self.set_bda8(0xa0, 0);
            self.return_carry(false);
        }
    }

    /// Copies CX words between the two descriptors that the caller built in its table at ES:SI.
    fn move_block(&mut self) {
        let table = self.far(Seg::Es, self.get16(reg::SI));
        let base = |descriptor: u64| descriptor >> 16 & 0xff_ffff | descriptor >> 32 & 0xff00_0000;
        let from = base(self.memory.read_u64(table.offset(0x10)));
        let to = base(self.memory.read_u64(table.offset(0x18)));
        let mut bytes = vec![0; 2 * usize::from(self.get16(reg::CX))];
        self.memory.read(PhysAddr(from), &mut bytes);
        self.memory.write(PhysAddr(to), &bytes);
        self.set8_high(reg::AX, 0);
        self.return_carry(false);
        self.return_zero(true);
    }

    pub(super) fn clock(&mut self) {
        match self.high(reg::AX) {
            0x00 => {
                let ticks = self.ticks();
                self.set16(reg::CX, (ticks >> 16) as u16);
                self.set16(reg::DX, ticks as u16);
                self.set8(reg::AX, self.bda8(0x70));
                self.set_bda8(0x70, 0);
            }
            0x01 => {
                let ticks = u32::from(self.get16(reg::CX)) << 16 | u32::from(self.get16(reg::DX));
                self.memory.write_u32(PhysAddr(0x46c), ticks);
                self.set_bda8(0x70, 0);
            }
            0x02 => {
                let ([hour, minute, second], _) = self.board.date();
                self.set16(reg::CX, u16::from_be_bytes([hour, minute]));
                self.set16(reg::DX, u16::from_be_bytes([second, 0]));
                self.return_carry(false);
            }
            0x04 => {
                let (_, [century, year, month, day]) = self.board.date();
                self.set16(reg::CX, u16::from_be_bytes([century, year]));
                self.set16(reg::DX, u16::from_be_bytes([month, day]));
                self.return_carry(false);
            }
            // The PCI BIOS is not there, nor is anything else.
            0xb1 => {
                self.set8_high(reg::AX, 0x81);
                self.return_carry(true);
            }
            _ => self.return_carry(true),
        }
    }

    /// Reads the boot sector anew and starts it.
    pub(super) fn bootstrap(&mut self) {
        let sector = self.board.disk(0).and_then(|disk| disk.read(0)).filter(|sector| is_bootable(sector));
        let Some(sector) = sector else { return self.no_boot_device() };
        self.memory.write(PhysAddr(BOOT_ADDRESS), &sector);
        self.set8(reg::DX, FIRST_DISK);
        self.cpu.segments[Seg::Cs as usize] = Segment { attributes: 0x9b, ..Segment::real(0) };
        self.cpu.rip = BOOT_ADDRESS;
    }

    pub(super) fn no_boot_device(&mut self) {
        for byte in NO_DISK.bytes() {
            self.teletype(byte, None);
        }
        self.cpu.rip = u64::from(rom::halt());
    }
}

//! What processors read from and write to: ports, and the registers of devices in memory.

use super::{BIOS_PORT, Board, Direction, MICROS, SHUTDOWN_WORD, Signal, Unmodelled};
use crate::devices::clock::{LAPIC_HZ, PIT_HZ, PM_TIMER_HZ, RTC_HZ};
use crate::devices::vga::Vga;
use crate::devices::{i8042, ioapic, lapic, power};
use trace::{CpuId, PhysAddr};

impl Board {
    pub fn port_read(&mut self, now: u64, _cpu: CpuId, port: u16, size: u8) -> u32 {
        self.advance(now);
        if let 0x1f0 | 0x170 = port {
            let micros = self.tick(MICROS);
            let ide = &mut self.ide[usize::from(port == 0x170)];
            let value = ide.data_read(size, micros);
            if ide.at_boundary() {
                self.carry_interrupt_lines();
            }
            return value;
        }
        if size == 4 && port == 0xcf8 {
            return self.pci_address;
        }
        let mut bytes = [0xff; 4];
        for (offset, byte) in (0..u16::from(size)).zip(&mut bytes) {
            *byte = self.byte_read(port.wrapping_add(offset));
        }
        self.carry_interrupt_lines();
        u32::from_le_bytes(bytes) & size_mask(size)
    }

    fn byte_read(&mut self, port: u16) -> u8 {
        match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => self.pic.port_read(port),
            0x40..=0x42 | 0x61 => self.pit.port_read(port, self.clock.ticks(self.now, PIT_HZ)),
            0x60 | 0x64 => self.i8042.port_read(port, self.clock.ticks(self.now, MICROS)),
            0x70 | 0x71 => self.rtc.port_read(port, self.clock.ticks(self.now, RTC_HZ)),
            0x80 => self.post_code,
            0x92 => self.port_92,
            0x2f8..=0x2ff => self.serial[1].port_read(port),
            0x3f8..=0x3ff => self.serial[0].port_read(port),
            0x1f1..=0x1f7 => self.ide[0].port_read(port & 7),
            0x3f6 => self.ide[0].port_read(8),
            0x171..=0x177 => self.ide[1].port_read(port & 7),
            0x376 => self.ide[1].port_read(8),
            power::STATUS..=power::LAST => self.power.read(port, self.clock.ticks(self.now, PM_TIMER_HZ)),
            0xcf9 => self.reset_control,
            0xcf8 | 0xcfa | 0xcfb => (self.pci_address >> (8 * (port & 3))) as u8,
            // No device answers in PCI configuration space.
            0xcfc..=0xcff => 0xff,
            0xe9 => 0xe9,
            _ if Vga::claims(port) => self.vga.port_read(port, self.clock.ticks(self.now, MICROS)),
            _ if absent(port) => 0xff,
            _ => {
                self.unmodelled.insert(Unmodelled::Port(port, Direction::Read));
                0xff
            }
        }
    }

    pub fn port_write(&mut self, now: u64, cpu: CpuId, port: u16, size: u8, value: u32) {
        self.advance(now);
        match (port, size) {
            (0x1f0 | 0x170, _) => {
                let micros = self.tick(MICROS);
                let ide = &mut self.ide[usize::from(port == 0x170)];
                ide.data_write(size, value, micros);
                if !ide.at_boundary() {
                    return;
                }
            }
            (0xcf8, 4) => self.pci_address = value,
            (power::STATUS..power::TIMER, 2 | 4) => {
                if self.power.write(port, value as u16) {
                    self.signals.push_back(Signal::PowerOff);
                }
            }
            // ACPI sleep control of Bochs and old QEMU, and of VirtualBox.
            (0xb004 | 0x4004, 2 | 4) => {
                if value & u32::from(power::SLEEP_ENABLE) != 0 {
                    self.signals.push_back(Signal::PowerOff);
                }
            }
            (0xf4, _) => self.signals.push_back(Signal::Exit { status: value << 1 | 1 }),
            (BIOS_PORT, 1) => self.signals.push_back(Signal::BiosCall { cpu }),
            _ => {
                for (offset, byte) in (0..u16::from(size)).zip(value.to_le_bytes()) {
                    self.byte_write(port.wrapping_add(offset), byte);
                }
            }
        }
        self.carry_interrupt_lines();
    }

    fn byte_write(&mut self, port: u16, value: u8) {
        match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => self.pic.port_write(port, value),
            0x40..=0x43 | 0x61 => self.pit.port_write(port, value, self.clock.ticks(self.now, PIT_HZ)),
            0x60 | 0x64 => {
                let micros = self.tick(MICROS);
                match self.i8042.port_write(port, value, micros) {
                    i8042::Effect::None => {}
                    i8042::Effect::Reset => self.signals.push_back(Signal::Reset),
                    i8042::Effect::A20(open) => self.a20(open),
                    i8042::Effect::Unmodelled => {
                        self.unmodelled.insert(Unmodelled::Port(port, Direction::Write));
                    }
                }
            }
            0x70 | 0x71 => self.rtc.port_write(port, value, self.clock.ticks(self.now, RTC_HZ)),
            0x80 => self.post_code = value,
            // Writing here only makes time pass.
            0xed => {}
            // Clears a numeric coprocessor's interrupt, which none here raises.
            0xf0 => {}
            0x92 => {
                if value & !self.port_92 & 1 != 0 {
                    self.signals.push_back(Signal::Reset);
                }
                self.port_92 = value;
                self.a20(value & 2 != 0);
            }
            0xe9 => self.debug_output.push(value),
            0x2f8..=0x2ff => self.serial[1].port_write(port, value),
            0x3f8..=0x3ff => self.serial[0].port_write(port, value),
            0x1f1..=0x1f7 => self.ide[0].port_write(port & 7, value, self.clock.ticks(self.now, MICROS)),
            0x3f6 => self.ide[0].port_write(8, value, self.clock.ticks(self.now, MICROS)),
            0x171..=0x177 => self.ide[1].port_write(port & 7, value, self.clock.ticks(self.now, MICROS)),
            0x376 => self.ide[1].port_write(8, value, self.clock.ticks(self.now, MICROS)),
            0xcf9 => {
                if value & !self.reset_control & 4 != 0 {
                    self.signals.push_back(Signal::Reset);
                }
                self.reset_control = value & 0x0e;
            }
            // The second of PCI's two ways to configure, which this board does not have, is looked for here.
            0xcf8 | 0xcfa | 0xcfb => {}
            0xcfc..=0xcff => {}
            0x8900 => {
                let expected = SHUTDOWN_WORD[self.shutdown_matched];
                self.shutdown_matched = if value == expected { self.shutdown_matched + 1 } else { 0 };
                if self.shutdown_matched == SHUTDOWN_WORD.len() {
                    self.shutdown_matched = 0;
                    self.signals.push_back(Signal::PowerOff);
                }
            }
            _ if Vga::claims(port) => self.vga.port_write(port, value),
            _ if absent(port) => {}
            _ => {
                self.unmodelled.insert(Unmodelled::Port(port, Direction::Write));
            }
        }
    }

    pub fn mmio_claims(&self, addr: PhysAddr) -> bool {
        matches!(addr.page().0, lapic::BASE | ioapic::BASE)
    }

    /// The value of a register that only a write changes and that is read without effect: nobody need look at
    /// devices for it. Kernels read the number of their processor wherever they take a lock.
    #[inline]
    pub fn mmio_constant(&self, cpu: CpuId, addr: PhysAddr, size: usize) -> Option<u32> {
        let is_number = addr.0 == lapic::BASE + lapic::NUMBER && size == 4;
        is_number.then(|| self.lapics[usize::from(cpu.0)].number())
    }

    pub fn mmio_read(&mut self, now: u64, cpu: CpuId, addr: PhysAddr, size: u8) -> u64 {
        self.advance(now);
        let aligned = addr.0 & 0xfff & !3;
        let word = if addr.page().0 == lapic::BASE {
            let bus = self.tick(LAPIC_HZ);
            let (value, effect) = self.lapics[usize::from(cpu.0)].read(aligned as u32, bus);
            (effect == lapic::Effect::None).then_some(value)
        } else {
            self.ioapic.read(aligned)
        };
        if word.is_none() {
            self.unmodelled.insert(Unmodelled::Memory(addr, Direction::Read));
            self.carry_interrupt_lines();
        }
        let value = u64::from(word.unwrap_or(0)) >> (8 * (addr.0 & 3));
        if size >= 8 { value } else { value & ((1 << (8 * size)) - 1) }
    }

    /// Writes a device register. The chips take whole registers; a narrower write is taken for one, as
    /// processors of the time do not define it.
    pub fn mmio_write(&mut self, now: u64, cpu: CpuId, addr: PhysAddr, size: u8, value: u64) {
        self.advance(now);
        let offset = addr.0 & 0xfff;
        let known = if size != 4 || offset & 3 != 0 {
            false
        } else if addr.page().0 == lapic::BASE {
            let bus = self.tick(LAPIC_HZ);
            match self.lapics[usize::from(cpu.0)].write(offset as u32, value as u32, bus) {
                lapic::Effect::None => true,
                lapic::Effect::Unmodelled => false,
                lapic::Effect::Send(ipi) => {
                    self.send(Some(usize::from(cpu.0)), ipi);
                    true
                }
                lapic::Effect::EndOfInterrupt(vector) => {
                    for message in self.ioapic.end_of_interrupt(vector) {
                        self.send(None, message);
                    }
                    true
                }
            }
        } else {
            match self.ioapic.write(offset, value as u32) {
                ioapic::Effect::None => true,
                ioapic::Effect::Unmodelled => false,
                ioapic::Effect::Send(message) => {
                    self.send(None, message);
                    true
                }
            }
        };
        if !known {
            self.unmodelled.insert(Unmodelled::Memory(addr, Direction::Write));
        }
        self.carry_interrupt_lines();
    }
}

/// Ports of chips that this board does not have, as many do not.
fn absent(port: u16) -> bool {
    matches!(
        port,
        // DMA page registers, Super-I/O chips, third and fourth serial port, parallel port.
        0x81..=0x8f | 0x2e | 0x2f | 0x4e | 0x4f | 0x2e8..=0x2ef | 0x3e8..=0x3ef | 0x378..=0x37a
    )
}

fn size_mask(size: u8) -> u32 {
    if size >= 4 { !0 } else { (1 << (8 * size)) - 1 }
}

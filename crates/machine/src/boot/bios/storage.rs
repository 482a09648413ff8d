//! INT 13h: hard disks.

use trace::PhysAddr;

use super::{FIRST_DISK, Service};
use crate::devices::disk::{Disk, SECTOR_SIZE};
use crate::x86::state::{Seg, reg};

const BAD_COMMAND: u8 = 0x01;
const NOT_FOUND: u8 = 0x04;
const NOT_READY: u8 = 0x80;

const TRACK: u32 = 63;
const CYLINDERS_MAX: u32 = 1024;

/// The geometry the BIOS shows: more heads than the disk has where cylinders would overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Geometry {
    cylinders: u32,
    heads: u32,
}

impl Geometry {
    fn of(disk: &Disk) -> Self {
        let heads = [16, 32, 64, 128]
            .into_iter()
            .find(|heads| disk.sectors() / (heads * TRACK) <= CYLINDERS_MAX)
            .unwrap_or(255);
        Self { cylinders: (disk.sectors() / (heads * TRACK)).clamp(1, CYLINDERS_MAX), heads }
    }
}

enum Move {
    Read,
    Write,
    Verify,
}

impl Service<'_> {
    pub(super) fn storage(&mut self) {
        let answer = self.storage_function();
        self.set_bda8(0x74, answer.err().unwrap_or(0));
        self.set8_high(reg::AX, answer.unwrap_or_else(|status| status));
        self.return_carry(answer.is_err());
    }

    /// The unit on the board behind a drive number: disks are numbered as they are found.
    fn unit(&self) -> Option<usize> {
        let number = usize::from(self.low(reg::DX).checked_sub(FIRST_DISK)?);
        (0..4).filter(|&unit| self.board.disk(unit).is_some()).nth(number)
    }

    fn disk_count(&self) -> u8 {
        (0..4).filter(|&unit| self.board.disk(unit).is_some()).count() as u8
    }

    /// Carries out the function. What comes back in AH is an answer, or the status of a failure.
    fn storage_function(&mut self) -> Result<u8, u8> {
        let function = self.high(reg::AX);
        if function == 0x01 {
            return Ok(self.bda8(0x74));
        }
        let Some(unit) = self.unit() else {
            return match function {
                0x00 if self.low(reg::DX) < FIRST_DISK => Ok(0),
                0x02..=0x04 if self.low(reg::DX) < FIRST_DISK => Err(NOT_READY),
                // "No such drive" is an answer.
                0x15 => Ok(0),
                _ => Err(BAD_COMMAND),
            };
        };
        let Some(disk) = self.board.disk(unit) else { return Err(BAD_COMMAND) };
        let geometry = Geometry::of(disk);
        let sectors = disk.sectors();
        match function {
            0x00 | 0x09 | 0x0c | 0x0d | 0x10 | 0x11 | 0x14 | 0x47 => Ok(0),
            0x02 => self.by_geometry(unit, geometry, &Move::Read),
            0x03 => self.by_geometry(unit, geometry, &Move::Write),
            0x04 => self.by_geometry(unit, geometry, &Move::Verify),
            0x08 => {
                let last = geometry.cylinders - 1;
                self.set16(reg::CX, u16::from_be_bytes([last as u8, (last >> 2 & 0xc0) as u8 | TRACK as u8]));
                self.set16(reg::DX, u16::from_be_bytes([(geometry.heads - 1) as u8, self.disk_count()]));
                self.set8(reg::AX, 0);
                Ok(0)
            }
            0x15 => {
                self.set16(reg::CX, (sectors >> 16) as u16);
                self.set16(reg::DX, sectors as u16);
                // A fixed disk.
                Ok(3)
            }
            0x41 if self.get16(reg::BX) == 0x55aa => {
                self.set16(reg::BX, 0xaa55);
                self.set16(reg::CX, 1);
                // The version of the extensions.
                Ok(0x21)
            }
            0x42 => self.by_packet(unit, &Move::Read),
            0x43 => self.by_packet(unit, &Move::Write),
            0x44 => self.by_packet(unit, &Move::Verify),
            0x48 => self.parameters(geometry, sectors),
            _ => Err(BAD_COMMAND),
        }
    }

    fn by_geometry(&mut self, unit: usize, geometry: Geometry, action: &Move) -> Result<u8, u8> {
        let [cylinder_low, sector_and_high] = self.get16(reg::CX).to_be_bytes();
        let cylinder = u32::from(cylinder_low) | u32::from(sector_and_high & 0xc0) << 2;
        let (sector, head) = (u32::from(sector_and_high & 0x3f), u32::from(self.high(reg::DX)));
        let count = u32::from(self.low(reg::AX));
        if sector == 0 || count == 0 || head >= geometry.heads {
            return Err(BAD_COMMAND);
        }
        let first = (cylinder * geometry.heads + head) * TRACK + sector - 1;
        let buffer = self.far(Seg::Es, self.get16(reg::BX));
        let moved = self.transfer(unit, first, count, buffer, action);
        self.set8(reg::AX, moved as u8);
        if moved == count { Ok(0) } else { Err(NOT_FOUND) }
    }

    fn by_packet(&mut self, unit: usize, action: &Move) -> Result<u8, u8> {
        let packet = self.far(Seg::Ds, self.get16(reg::SI));
        let size = self.memory.read_u8(packet);
        if size < 16 {
            return Err(BAD_COMMAND);
        }
        let count = u32::from(self.memory.read_u16(packet.offset(2)));
        let (offset, segment) =
            (self.memory.read_u16(packet.offset(4)), self.memory.read_u16(packet.offset(6)));
        let buffer = if (offset, segment) == (0xffff, 0xffff) && size >= 24 {
            PhysAddr(self.memory.read_u64(packet.offset(16)))
        } else {
            PhysAddr((u64::from(segment) << 4) + u64::from(offset))
        };
        let Ok(first) = u32::try_from(self.memory.read_u64(packet.offset(8))) else { return Err(NOT_FOUND) };
        let moved = self.transfer(unit, first, count, buffer, action);
        self.memory.write_u16(packet.offset(2), moved as u16);
        if moved == count { Ok(0) } else { Err(NOT_FOUND) }
    }

    /// How many sectors were moved.
    fn transfer(&mut self, unit: usize, first: u32, count: u32, buffer: PhysAddr, action: &Move) -> u32 {
        for index in 0..count {
            let at = buffer.offset(u64::from(index) * SECTOR_SIZE as u64);
            let Some(sector) = first.checked_add(index) else { return index };
            let done = match action {
                Move::Read => match self.board.disk(unit).and_then(|disk| disk.read(sector)) {
                    Some(data) => {
                        self.memory.write(at, &data);
                        true
                    }
                    None => false,
                },
                Move::Write => {
                    let mut data = [0; SECTOR_SIZE];
                    self.memory.read(at, &mut data);
                    self.board.disk_mut(unit).is_some_and(|disk| disk.write(sector, &data))
                }
                Move::Verify => self.board.disk(unit).is_some_and(|disk| sector < disk.sectors()),
            };
            if !done {
                return index;
            }
        }
        count
    }

    fn parameters(&mut self, geometry: Geometry, sectors: u32) -> Result<u8, u8> {
        let at = self.far(Seg::Ds, self.get16(reg::SI));
        if self.memory.read_u16(at) < 26 {
            return Err(BAD_COMMAND);
        }
        self.memory.write_u16(at, 26);
        self.memory.write_u16(at.offset(2), 0x0002);
        for (offset, value) in [(4, geometry.cylinders), (8, geometry.heads), (12, TRACK)] {
            self.memory.write_u32(at.offset(offset), value);
        }
        self.memory.write_u64(at.offset(16), u64::from(sectors));
        self.memory.write_u16(at.offset(24), SECTOR_SIZE as u16);
        Ok(0)
    }
}

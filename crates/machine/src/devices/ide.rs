//! One ATA channel with up to two disks, by programmed input and output.
//!
//! Contract: a command is busy for a fixed time, then moves data a sector at a time through the data port;
//! `irq` is the channel's line. A disk that is missing reads as zeros, also where the channel has none at all:
//! a kernel that looks for disks waits until nobody is busy, which a channel that floated high would seem to be for ever
//! (the standard has the host pull that line down). Source: ATA/ATAPI-6 (T13 1410D), PIO data-in, PIO data-out and non-data protocols. Not
//! modelled: DMA, 48-bit addresses, packet devices; such commands are aborted, as a disk without them does.

use super::disk::{Disk, SECTOR_SIZE};
use serde::{Deserialize, Serialize};

/// How long a disk is busy before each block of data and after each command.
const BUSY_MICROS: u64 = 20;

const ERR: u8 = 0x01;
const DRQ: u8 = 0x08;
const SEEK_COMPLETE: u8 = 0x10;
const READY: u8 = 0x40;
const BUSY: u8 = 0x80;

const ABORTED: u8 = 0x04;
const NOT_FOUND: u8 = 0x10;

const MULTIPLE_MAX: u8 = 16;

/// A run of sectors being moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Transfer {
    sector: u32,
    sectors_left: u32,
    /// Sectors between two interrupts.
    block: u32,
    left_in_block: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum State {
    Idle,
    /// Busy, then the first sector of a block is ready to be read.
    Fetching(Transfer),
    Reading(Transfer),
    /// IDENTIFY data is ready, or will be.
    Identifying,
    Identified,
    /// Waits for the data of a sector; the first block of a write command is asked for without an interrupt.
    Writing(Transfer),
    /// Busy writing a block.
    Storing(Transfer),
    /// Busy with a command that moves no data.
    Finishing,
}

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Ide {
    disks: [Option<Disk>; 2],
    multiple: [u8; 2],
    features: u8,
    count: u8,
    low: u8,
    mid: u8,
    high: u8,
    device: u8,
    error: u8,
    failed: bool,
    state: State,
    busy_until: u64,
    #[serde(with = "crate::snapshot::array")]
    buffer: [u8; SECTOR_SIZE],
    position: usize,
    interrupt: bool,
    /// Device control: bit 1 silences interrupts, bit 2 holds the channel in reset.
    control: u8,
}

impl Ide {
    pub fn new(disks: [Option<Disk>; 2]) -> Self {
        Self {
            disks,
            multiple: [0; 2],
            features: 0,
            count: 1,
            low: 1,
            mid: 0,
            high: 0,
            device: 0,
            error: 1,
            failed: false,
            state: State::Idle,
            busy_until: 0,
            buffer: [0; SECTOR_SIZE],
            position: 0,
            interrupt: false,
            control: 0,
        }
    }

    pub fn disk(&self, unit: usize) -> Option<&Disk> {
        self.disks.get(unit)?.as_ref()
    }

    pub fn disk_mut(&mut self, unit: usize) -> Option<&mut Disk> {
        self.disks.get_mut(unit)?.as_mut()
    }

    fn unit(&self) -> usize {
        usize::from(self.device >> 4 & 1)
    }

    fn empty(&self) -> bool {
        self.disks.iter().all(Option::is_none)
    }

    pub fn irq(&self) -> bool {
        self.interrupt && self.control & 2 == 0
    }

    fn busy(&self) -> bool {
        matches!(self.state, State::Fetching(_) | State::Identifying | State::Storing(_) | State::Finishing)
    }

    /// When `advance` has something to do.
    pub fn next_micros(&self) -> Option<u64> {
        self.busy().then_some(self.busy_until)
    }

    fn start(&mut self, state: State, micros: u64) {
        self.state = state;
        self.busy_until = micros + BUSY_MICROS;
    }

    pub fn advance(&mut self, micros: u64) {
        if !self.busy() || micros < self.busy_until {
            return;
        }
        self.position = 0;
        self.state = match self.state {
            State::Fetching(transfer) => match self.fetch(transfer) {
                Some(reading) => reading,
                None => self.fail(NOT_FOUND, transfer),
            },
            State::Identifying => {
                self.identify();
                State::Identified
            }
            State::Storing(transfer) if transfer.sectors_left > 0 => State::Writing(transfer),
            _ => State::Idle,
        };
        self.interrupt = true;
    }

    fn fetch(&mut self, mut transfer: Transfer) -> Option<State> {
        self.buffer = self.disk(self.unit())?.read(transfer.sector)?;
        self.position = 0;
        transfer.sectors_left -= 1;
        transfer.left_in_block = transfer.left_in_block.saturating_sub(1);
        Some(State::Reading(transfer))
    }

    fn fail(&mut self, error: u8, at: Transfer) -> State {
        self.error = error;
        self.failed = true;
        self.set_address(at.sector);
        State::Idle
    }

    fn status(&self) -> u8 {
        if self.control & 4 != 0 {
            return BUSY;
        }
        let phase = match self.state {
            _ if self.busy() => return BUSY,
            State::Reading(_) | State::Writing(_) | State::Identified => DRQ,
            _ => 0,
        };
        READY | SEEK_COMPLETE | phase | if self.failed { ERR } else { 0 }
    }

    /// The sector the address registers name.
    fn address(&self) -> Option<u32> {
        if self.device & 0x40 != 0 {
            Some(u32::from_le_bytes([self.low, self.mid, self.high, self.device & 15]))
        } else {
            let cylinder = u32::from(u16::from_le_bytes([self.mid, self.high]));
            Disk::linear(cylinder, u32::from(self.device & 15), u32::from(self.low))
        }
    }

    fn set_address(&mut self, sector: u32) {
        if self.device & 0x40 != 0 {
            let [low, mid, high, top] = sector.to_le_bytes();
            (self.low, self.mid, self.high) = (low, mid, high);
            self.device = self.device & 0xf0 | top & 15;
        } else {
            let (cylinder, in_cylinder) =
                (sector / (Disk::HEADS * Disk::TRACK), sector % (Disk::HEADS * Disk::TRACK));
            let [mid, high] = (cylinder as u16).to_le_bytes();
            (self.mid, self.high) = (mid, high);
            self.low = (in_cylinder % Disk::TRACK + 1) as u8;
            self.device = self.device & 0xf0 | (in_cylinder / Disk::TRACK) as u8;
        }
    }

    fn identify(&mut self) {
        let Some(disk) = self.disk(self.unit()) else { return };
        let (sectors, cylinders) = (disk.sectors().min(0x0fff_ffff), disk.cylinders());
        let chs_sectors = (cylinders * Disk::HEADS * Disk::TRACK).min(sectors);
        let mut words = [0u16; 256];
        let mut text = |first: usize, length: usize, text: &str| {
            let bytes = text.bytes().chain(std::iter::repeat(b' '));
            let bytes: Vec<u8> = bytes.take(2 * length).collect();
            for (index, pair) in bytes.chunks(2).enumerate() {
                words[first + index] = u16::from_be_bytes([pair[0], pair[1]]);
            }
        };
        text(10, 10, if self.device & 0x10 == 0 { "RF00001" } else { "RF00002" });
        text(23, 4, "1.0");
        text(27, 20, "ROCKFALL DISK");
        let multiple = self.multiple[self.unit()];
        for (word, value) in [
            (0, 0x0040),
            (1, cylinders as u16),
            (3, Disk::HEADS as u16),
            (6, Disk::TRACK as u16),
            (47, 0x8000 | u16::from(MULTIPLE_MAX)),
            (49, 0x0200), // LBA, no DMA
            (50, 0x4000),
            (51, 0x0200),
            (53, 0x0003),
            (54, cylinders as u16),
            (55, Disk::HEADS as u16),
            (56, Disk::TRACK as u16),
            (57, chs_sectors as u16),
            (58, (chs_sectors >> 16) as u16),
            (59, if multiple == 0 { 0 } else { 0x100 | u16::from(multiple) }),
            (60, sectors as u16),
            (61, (sectors >> 16) as u16),
            (64, 0x0003), // PIO modes 3 and 4
            (67, 120),
            (68, 120),
            (80, 0x007e), // ATA-1 to ATA-6
            (82, 0x0020),
            (83, 0x5000), // FLUSH CACHE
            (84, 0x4000),
            (85, 0x0020),
            (86, 0x1000),
            (87, 0x4000),
        ] {
            words[word] = value;
        }
        for (word, bytes) in words.iter().zip(self.buffer.chunks_mut(2)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn command(&mut self, command: u8, micros: u64) {
        self.interrupt = false;
        self.failed = false;
        self.error = 0;
        if self.disk(self.unit()).is_none() && command != 0x90 {
            self.state = State::Idle;
            return;
        }
        let multiple = u32::from(self.multiple[self.unit()]);
        match command {
            0x20 | 0x21 => self.begin(1, State::Fetching, micros),
            0x30 | 0x31 => self.begin(1, State::Writing, micros),
            0xc4 if multiple > 0 => self.begin(multiple, State::Fetching, micros),
            0xc5 if multiple > 0 => self.begin(multiple, State::Writing, micros),
            0x40 | 0x41 => {
                let end = self.address().map(|first| first.saturating_add(self.sector_count()));
                match (end, self.disk(self.unit())) {
                    (Some(end), Some(disk)) if end <= disk.sectors() => self.start(State::Finishing, micros),
                    _ => self.abort(NOT_FOUND, micros),
                }
            }
            0xc6 if self.count.is_power_of_two() && self.count <= MULTIPLE_MAX => {
                self.multiple[self.unit()] = self.count;
                self.start(State::Finishing, micros);
            }
            0xec => self.start(State::Identifying, micros),
            0xef if matches!(self.features, 0x02 | 0x82 | 0xaa | 0x55 | 0x66 | 0xcc | 0x95 | 0x9a) => {
                self.start(State::Finishing, micros);
            }
            // Transfer modes: any PIO mode.
            0xef if self.features == 0x03 && self.count < 0x10 => self.start(State::Finishing, micros),
            0x90 => {
                self.signature();
                self.device &= !0x10;
                self.start(State::Finishing, micros);
            }
            0xe5 => {
                self.count = 0xff;
                self.start(State::Finishing, micros);
            }
            // Recalibrate, seek, device parameters, power management, flush.
            0x10..=0x1f | 0x70..=0x7f | 0x91 | 0xe0..=0xe3 | 0xe6 | 0xe7 => {
                self.start(State::Finishing, micros)
            }
            0xf8 => {
                let last = self.disk(self.unit()).map_or(0, |disk| disk.sectors() - 1);
                self.device |= 0x40;
                self.set_address(last);
                self.start(State::Finishing, micros);
            }
            _ => self.abort(ABORTED, micros),
        }
    }

    fn abort(&mut self, error: u8, micros: u64) {
        self.error = error;
        self.failed = true;
        self.start(State::Finishing, micros);
    }

    fn sector_count(&self) -> u32 {
        if self.count == 0 { 256 } else { u32::from(self.count) }
    }

    fn begin(&mut self, block: u32, state: fn(Transfer) -> State, micros: u64) {
        let Some(sector) = self.address() else { return self.abort(NOT_FOUND, micros) };
        let sectors_left = self.sector_count();
        self.position = 0;
        let transfer = Transfer { sector, sectors_left, block, left_in_block: block.min(sectors_left) };
        self.start(state(transfer), micros);
    }

    /// What a disk shows after a reset.
    fn signature(&mut self) {
        (self.count, self.low, self.mid, self.high, self.error) = (1, 1, 0, 0, 1);
    }

    /// The data of a sector has been read or written to its last byte.
    fn sector_done(&mut self, micros: u64) {
        self.position = 0;
        match self.state {
            State::Reading(mut transfer) => {
                self.count = transfer.sectors_left as u8;
                self.set_address(transfer.sector);
                if transfer.sectors_left == 0 {
                    self.state = State::Idle;
                    return;
                }
                transfer.sector = transfer.sector.wrapping_add(1);
                if transfer.left_in_block > 0 {
                    self.state = self.fetch(transfer).unwrap_or_else(|| self.fail(NOT_FOUND, transfer));
                } else {
                    transfer.left_in_block = transfer.block.min(transfer.sectors_left);
                    self.start(State::Fetching(transfer), micros);
                }
            }
            State::Writing(mut transfer) => {
                let (unit, data) = (self.unit(), self.buffer);
                if !self.disk_mut(unit).is_some_and(|disk| disk.write(transfer.sector, &data)) {
                    self.state = self.fail(NOT_FOUND, transfer);
                    self.interrupt = true;
                    return;
                }
                transfer.sectors_left -= 1;
                transfer.left_in_block -= 1;
                self.count = transfer.sectors_left as u8;
                self.set_address(transfer.sector);
                transfer.sector = transfer.sector.wrapping_add(1);
                if transfer.left_in_block > 0 {
                    self.state = State::Writing(transfer);
                } else {
                    transfer.left_in_block = transfer.block.min(transfer.sectors_left);
                    self.start(State::Storing(transfer), micros);
                }
            }
            _ => self.state = State::Idle,
        }
    }

    /// Whether the last access through the data port may have changed anything but the position in the
    /// buffer.
    pub fn at_boundary(&self) -> bool {
        self.position == 0
    }

    /// The data port: `size` bytes, lowest first.
    pub fn data_read(&mut self, size: u8, micros: u64) -> u32 {
        if !matches!(self.state, State::Reading(_) | State::Identified) {
            return 0;
        }
        let mut bytes = [0; 4];
        for byte in bytes.iter_mut().take(usize::from(size)) {
            *byte = self.buffer[self.position % SECTOR_SIZE];
            self.position += 1;
        }
        if self.position >= SECTOR_SIZE {
            self.sector_done(micros);
        }
        u32::from_le_bytes(bytes)
    }

    pub fn data_write(&mut self, size: u8, value: u32, micros: u64) {
        if !matches!(self.state, State::Writing(_)) {
            return;
        }
        for byte in value.to_le_bytes().into_iter().take(usize::from(size)) {
            self.buffer[self.position % SECTOR_SIZE] = byte;
            self.position += 1;
        }
        if self.position >= SECTOR_SIZE {
            self.sector_done(micros);
        }
    }

    /// Registers 1 to 7 of the command block, and 8 for the alternate status.
    pub fn port_read(&mut self, register: u16) -> u8 {
        if self.empty() || self.disk(self.unit()).is_none() && register != 6 {
            return 0;
        }
        match register {
            1 => self.error,
            2 => self.count,
            3 => self.low,
            4 => self.mid,
            5 => self.high,
            6 => self.device | 0xa0,
            7 => {
                self.interrupt = false;
                self.status()
            }
            _ => self.status(),
        }
    }

    /// Registers 1 to 7 of the command block, and 8 for the device control register.
    pub fn port_write(&mut self, register: u16, value: u8, micros: u64) {
        if self.empty() {
            return;
        }
        if register == 8 {
            let ends_reset = self.control & 4 != 0 && value & 4 == 0;
            self.control = value & 6;
            if value & 4 != 0 {
                self.state = State::Idle;
                self.interrupt = false;
                self.failed = false;
            }
            if ends_reset {
                self.signature();
                self.device = 0;
            }
            return;
        }
        if self.busy() {
            return;
        }
        match register {
            1 => self.features = value,
            2 => self.count = value,
            3 => self.low = value,
            4 => self.mid = value,
            5 => self.high = value,
            6 => self.device = value,
            _ => self.command(value, micros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(sectors: usize) -> Disk {
        Disk::new((0..sectors).flat_map(|sector| [sector as u8; SECTOR_SIZE]).collect())
    }

    fn channel() -> Ide {
        Ide::new([Some(image(100)), None])
    }

    fn issue(ide: &mut Ide, registers: [u8; 5], command: u8) {
        for (register, value) in (2..).zip(registers) {
            ide.port_write(register, value, 0);
        }
        ide.port_write(7, command, 0);
    }

    fn wait(ide: &mut Ide) {
        if let Some(at) = ide.next_micros() {
            assert_eq!(ide.port_read(8), BUSY);
            ide.advance(at - 1);
            assert_eq!(ide.port_read(8), BUSY);
            ide.advance(at);
        }
    }

    fn read_sector(ide: &mut Ide) -> Vec<u8> {
        (0..128).flat_map(|_| ide.data_read(4, 0).to_le_bytes()).collect()
    }

    #[test]
    fn reads_sectors_with_an_interrupt_each() {
        for (registers, first) in [([2, 5, 0, 0, 0xe0], 5), ([2, 6, 0, 0, 0xa0], 5), ([2, 2, 0, 0, 0xa1], 64)]
        {
            let mut ide = channel();
            issue(&mut ide, registers, 0x20);
            assert!(!ide.irq());
            for sector in first..first + 2 {
                wait(&mut ide);
                assert!(ide.irq());
                assert_eq!(ide.port_read(7), READY | SEEK_COMPLETE | DRQ);
                assert!(!ide.irq());
                assert_eq!(read_sector(&mut ide), vec![sector as u8; SECTOR_SIZE]);
            }
            assert_eq!((ide.port_read(7), ide.next_micros()), (READY | SEEK_COMPLETE, None));
        }
    }

    #[test]
    fn writes_sectors() {
        let mut ide = channel();
        issue(&mut ide, [2, 9, 0, 0, 0xe0], 0x30);
        for fill in [0x1111_1111, 0x2222_2222] {
            assert_eq!(ide.port_read(7) & DRQ, DRQ);
            (0..128).for_each(|_| ide.data_write(4, fill, 0));
            wait(&mut ide);
            assert!(ide.irq());
        }
        assert_eq!(ide.port_read(7), READY | SEEK_COMPLETE);
        let disk = ide.disk(0).unwrap();
        assert_eq!([9, 10, 11].map(|sector| disk.read(sector).unwrap()[0]), [0x11, 0x22, 11]);
    }

    #[test]
    fn multiple_mode_interrupts_once_per_block() {
        let mut ide = channel();
        issue(&mut ide, [1, 0, 0, 0, 0xe0], 0xc4);
        wait(&mut ide);
        assert_eq!((ide.port_read(7) & ERR, ide.port_read(1)), (ERR, ABORTED), "not set up");
        issue(&mut ide, [4, 0, 0, 0, 0xe0], 0xc6);
        wait(&mut ide);
        issue(&mut ide, [6, 0, 0, 0, 0xe0], 0xc4);
        let mut interrupts = 0;
        for sector in 0..6u8 {
            wait(&mut ide);
            interrupts += u8::from(ide.irq());
            assert_eq!(ide.port_read(7) & DRQ, DRQ);
            assert_eq!(read_sector(&mut ide)[0], sector);
        }
        assert_eq!((interrupts, ide.port_read(7)), (2, READY | SEEK_COMPLETE));
    }

    #[test]
    fn identifies_itself() {
        let mut ide = channel();
        issue(&mut ide, [0, 0, 0, 0, 0xa0], 0xec);
        wait(&mut ide);
        let data = read_sector(&mut ide);
        assert_eq!(&data[120..124], 100u32.to_le_bytes());
        assert_eq!(&data[54..68], b"ORKCAFLLD SI K".as_slice());
    }

    #[test]
    fn errors_are_reported() {
        // registers, command, error
        for (registers, command, error) in [
            ([1, 100, 0, 0, 0xe0], 0x20, NOT_FOUND),
            ([1, 0, 0, 0, 0xa0], 0x20, NOT_FOUND),
            ([1, 0, 0, 0, 0xa0], 0xa1, ABORTED),
            ([1, 0, 0, 0, 0xe0], 0x25, ABORTED),
            ([3, 98, 0, 0, 0xe0], 0x40, NOT_FOUND),
        ] {
            let mut ide = channel();
            issue(&mut ide, registers, command);
            wait(&mut ide);
            assert!(ide.irq());
            assert_eq!((ide.port_read(7) & ERR, ide.port_read(1)), (ERR, error), "{command:#x}");
        }
    }

    #[test]
    fn absent_disks_are_absent() {
        let mut ide = channel();
        ide.port_write(6, 0xb0, 0);
        ide.port_write(2, 0x55, 0);
        assert_eq!((ide.port_read(7), ide.port_read(2)), (0, 0));
        issue(&mut ide, [0, 0, 0, 0, 0xb0], 0xec);
        assert_eq!((ide.port_read(7), ide.irq(), ide.next_micros()), (0, false, None));
        let mut nothing = Ide::new([None, None]);
        nothing.port_write(2, 0x55, 0);
        assert_eq!((nothing.port_read(7), nothing.port_read(2), nothing.data_read(2, 0)), (0, 0, 0));
    }

    #[test]
    fn resets_to_its_signature_and_can_be_silenced() {
        let mut ide = channel();
        ide.port_write(8, 4, 0);
        assert_eq!(ide.port_read(8), BUSY);
        ide.port_write(8, 2, 0);
        assert_eq!([1, 2, 3, 4, 5].map(|register| ide.port_read(register)), [1, 1, 1, 0, 0]);
        issue(&mut ide, [0, 0, 0, 0, 0xa0], 0xec);
        wait(&mut ide);
        assert!(!ide.irq());
        ide.port_write(8, 0, 0);
        assert!(ide.irq());
    }
}

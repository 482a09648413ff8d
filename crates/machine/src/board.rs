//! The board: which chip answers which port, which line leads where, and when the next of them has something to do.
//!
//! Contract: time is the number of instructions executed and never runs backwards. Every access first lets the chips catch up
//! with it; `advance` does so without an access and need not be called before `next_event`. Requests that concern the processors or
//! the whole machine are queued as `Signal`s. Plain data: a clone is an independent board.
//! Limits: the A20 gate is always open; its registers read back. A register nobody models reads as all ones, and the
//! access is kept in `unmodelled`; so do those of chips that a PC may lack and kernels look for, but that is as it should be.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use trace::{CpuId, PhysAddr};

use crate::devices::clock::{Clock, LAPIC_HZ, PIT_HZ, PM_TIMER_HZ, RTC_HZ};
use crate::devices::disk::Disk;
use crate::devices::ide::Ide;
use crate::devices::ioapic::{self, IoApic};
use crate::devices::keyboard::Key;
use crate::devices::lapic::{self, DeliveryMode, Destination, Ipi, Lapic};
use crate::devices::pic::PicPair;
use crate::devices::pit::Pit;
use crate::devices::power::{self, Power};
use crate::devices::rtc::{self, Rtc};
use crate::devices::serial::{Outbox, Serial};
use crate::devices::vga::Vga;
use crate::devices::{i8042, i8042::I8042};
use crate::transactions::Tsx;

/// Processors a board can hold: the flat logical destination has eight bits.
pub const CPUS_MAX: u8 = 8;
/// The ROM's stubs write here to call the services of `boot::bios`.
pub const BIOS_PORT: u16 = 0xb8;

const TIMER_IRQ: u8 = 0;
const RTC_IRQ: u8 = 8;
const CASCADE_IRQ: u8 = 2;
/// What Bochs and its heirs take for "switch off" at port 0x8900.
const SHUTDOWN_WORD: &[u8] = b"Shutdown";
const MICROS: u64 = 1_000_000;

/// What a board is built from.
#[derive(Clone, Debug)]
pub struct BoardConfig {
    pub cpus: u8,
    pub memory_bytes: u64,
    /// Primary master and slave, secondary master and slave.
    pub disks: [Option<Disk>; 4],
    pub clock: Clock,
    /// The date at time 0, in seconds since 1970.
    pub start_seconds: u64,
    /// Hardware transactional memory, if the processors have it.
    pub tsx: Option<Tsx>,
}

impl Default for BoardConfig {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory_bytes: 64 << 20,
            disks: [const { None }; 4],
            clock: Clock::default(),
            start_seconds: rtc::START_SECONDS,
            tsx: None,
        }
    }
}

/// Something the processors or the caller must act on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Signal {
    PowerOff,
    /// The debug-exit device: the status a process would exit with.
    Exit {
        status: u32,
    },
    Reset,
    Init {
        cpu: CpuId,
    },
    /// Start-up message: begin in real mode at `page` times 4096.
    Startup {
        cpu: CpuId,
        page: u8,
    },
    Nmi {
        cpu: CpuId,
    },
    /// A stub of the ROM asks for its service.
    BiosCall {
        cpu: CpuId,
    },
}

/// Who decides when timers interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum TimerMode {
    /// Machine time.
    FreeRunning,
    /// The caller, with `raise_timer`. Counters still show the time. Expiries that fall into this time are lost.
    Controlled,
    /// The caller, with `expire`. Counters still show the time. What expires meanwhile waits for the caller; of the
    /// expiries of a periodic timer only the first waits.
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TimerSource {
    Pit,
    LocalApic,
    RealTimeClock,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Direction {
    Read,
    Write,
}

/// An access that no chip of this board models.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Unmodelled {
    Port(u16, Direction),
    Memory(PhysAddr, Direction),
    /// The guest closed the A20 gate.
    A20Closed,
    /// A message of a kind that processors here do not take (SMI, ExtINT by message).
    Message(DeliveryMode),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Board {
    clock: Clock,
    timers: TimerMode,
    pic: PicPair,
    pit: Pit,
    lapics: Vec<Lapic>,
    ioapic: IoApic,
    rtc: Rtc,
    i8042: I8042,
    vga: Vga,
    serial: [Serial; 2],
    ide: [Ide; 2],
    power: Power,
    pci_address: u32,
    reset_control: u8,
    port_92: u8,
    post_code: u8,
    shutdown_matched: usize,
    signals: VecDeque<Signal>,
    debug_output: Outbox,
    unmodelled: BTreeSet<Unmodelled>,
    /// The latest time seen.
    now: u64,
    /// Caches, a function of the chips: when something happens next, and which processors have an interrupt.
    next_event: Option<u64>,
    pending: u8,
}

impl Hash for Board {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // What is left out is derived, diagnostic, or already with the caller.
        (self.clock, self.timers, &self.pic, &self.pit, &self.lapics, &self.ioapic).hash(state);
        (&self.rtc, &self.i8042, &self.vga, &self.serial, &self.ide, &self.power).hash(state);
        (self.pci_address, self.reset_control, self.port_92, self.post_code, self.shutdown_matched)
            .hash(state);
        (&self.signals, self.now).hash(state);
    }
}

impl Board {
    /// A board as its BIOS leaves it.
    pub fn new(config: BoardConfig) -> Self {
        assert!((1..=CPUS_MAX).contains(&config.cpus), "a board holds 1 to {CPUS_MAX} processors");
        let present = [config.disks[0].is_some(), config.disks[1].is_some()];
        let [disk0, disk1, disk2, disk3] = config.disks;
        let mut board = Self {
            clock: config.clock,
            timers: TimerMode::FreeRunning,
            pic: PicPair::default(),
            pit: Pit::default(),
            lapics: (0..config.cpus).map(Lapic::new).collect(),
            ioapic: IoApic::new(config.cpus),
            rtc: Rtc::new(config.start_seconds),
            i8042: I8042::default(),
            vga: Vga::default(),
            serial: [Serial::default(), Serial::default()],
            ide: [Ide::new([disk0, disk1]), Ide::new([disk2, disk3])],
            power: Power::default(),
            pci_address: 0,
            reset_control: 0,
            port_92: 2,
            post_code: 0,
            shutdown_matched: 0,
            signals: VecDeque::new(),
            debug_output: Outbox::default(),
            unmodelled: BTreeSet::new(),
            now: 0,
            next_event: None,
            pending: 0,
        };
        board.rtc.describe(config.memory_bytes, present, config.cpus);
        board.pit.initialise_as_bios(0);
        board.lapics[0].initialise_as_bios();
        board.settle();
        // Last, so that edges of the other chips' start-up are forgotten.
        board.pic.initialise_as_bios();
        board.settle();
        board
    }

    pub fn cpus(&self) -> u8 {
        self.lapics.len() as u8
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The chips' state as it enters the machine's hash.
    pub fn hash_into(&self, hasher: &mut impl Hasher) {
        self.hash(hasher);
    }

    // --- time ---

    fn tick(&self, hz: u64) -> u64 {
        self.clock.ticks(self.now, hz)
    }

    /// The time by which `advance` must be called.
    pub fn next_event(&self) -> Option<u64> {
        self.next_event
    }

    /// Lets the chips catch up with the time.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.next_event.is_none_or(|event| self.now < event) {
            return;
        }
        let fire = self.timers == TimerMode::FreeRunning;
        let (bus, micros) = (self.tick(LAPIC_HZ), self.tick(MICROS));
        if self.timers != TimerMode::Held {
            for lapic in &mut self.lapics {
                lapic.advance(bus, fire);
            }
        }
        if fire && self.pit.take_rise(self.clock.ticks(self.now, PIT_HZ)) {
            self.pulse(TIMER_IRQ);
        }
        self.rtc.advance(self.clock.ticks(self.now, RTC_HZ));
        self.i8042.advance(micros);
        for ide in &mut self.ide {
            ide.advance(micros);
        }
        self.settle();
    }

    /// Carries the chips' outputs to the interrupt controllers and refreshes the caches.
    fn settle(&mut self) {
        let (keyboard, mouse) = self.i8042.irq();
        let free = self.timers == TimerMode::FreeRunning;
        let driven = [
            (1, keyboard),
            (3, self.serial[1].irq()),
            (4, self.serial[0].irq()),
            (12, mouse),
            (14, self.ide[0].irq()),
            (15, self.ide[1].irq()),
        ];
        for (irq, high) in driven {
            self.set_line(irq, high);
        }
        if free {
            self.set_line(RTC_IRQ, self.rtc.irq());
            self.set_line(TIMER_IRQ, self.pit.output(self.tick(PIT_HZ)));
        }
        let pic = self.pic.output();
        self.pending = self.lapics.iter().enumerate().fold(0, |pending, (index, lapic)| {
            let asks = lapic.pending().is_some() || pic && lapic.passes_pic();
            pending | u8::from(asks) << index
        });
        let clock = self.clock;
        let timers = free.then(|| {
            let pit = self.pit.next_rise().map(|tick| clock.when(tick, PIT_HZ));
            let rtc = self.rtc.next_event().map(|tick| clock.when(tick, RTC_HZ));
            let lapics = self.lapics.iter().filter(|lapic| lapic.timer_armed());
            let expiries = lapics.filter_map(Lapic::next_expiry).map(|tick| clock.when(tick, LAPIC_HZ));
            expiries.chain(pit).chain(rtc).min()
        });
        let others = [self.i8042.next_micros(), self.ide[0].next_micros(), self.ide[1].next_micros()];
        let others = others.into_iter().flatten().min().map(|micros| clock.when(micros, MICROS));
        self.next_event = timers.flatten().into_iter().chain(others).min();
    }

    fn set_line(&mut self, irq: u8, high: bool) {
        self.pic.set_line(irq, high);
        // The interval timer's line leads to input 2 of the I/O APIC, where the cascade would be.
        let input = if irq == TIMER_IRQ { CASCADE_IRQ } else { irq };
        if let Some(message) = self.ioapic.set_line(input, high) {
            self.send(None, message);
        }
    }

    fn pulse(&mut self, irq: u8) {
        self.set_line(irq, false);
        self.set_line(irq, true);
    }

    // --- interrupts ---

    pub fn interrupt_pending(&self, cpu: CpuId) -> bool {
        self.pending >> cpu.0 & 1 != 0
    }

    /// The other processors that have an interrupt, as bits.
    pub fn pending_elsewhere(&self, cpu: CpuId) -> u8 {
        self.pending & !(1 << cpu.0)
    }

    /// The vector a processor receives when it takes an interrupt now.
    pub fn acknowledge(&mut self, now: u64, cpu: CpuId) -> u8 {
        self.advance(now);
        let lapic = &mut self.lapics[usize::from(cpu.0)];
        let vector = match lapic.acknowledge() {
            Some(vector) => vector,
            None if lapic.passes_pic() => self.pic.acknowledge(),
            None => lapic.spurious_vector(),
        };
        self.settle();
        vector
    }

    fn send(&mut self, from: Option<usize>, ipi: Ipi) {
        let addressed = |index: usize, lapic: &Lapic| match ipi.destination {
            Destination::Myself => Some(index) == from,
            Destination::All => true,
            Destination::Others => Some(index) != from,
            Destination::Physical(id) => id == 0xff || lapic.id() == id,
            Destination::Logical(set) => lapic.matches_logical(set),
        };
        let mut targets: Vec<usize> =
            (0..self.lapics.len()).filter(|&index| addressed(index, &self.lapics[index])).collect();
        if ipi.mode == DeliveryMode::LowestPriority {
            targets.sort_by_key(|&index| self.lapics[index].arbitration());
            targets.truncate(1);
        }
        for index in targets {
            let cpu = CpuId(index as u8);
            match ipi.mode {
                DeliveryMode::Fixed | DeliveryMode::LowestPriority => {
                    self.lapics[index].deliver(ipi.vector, ipi.level_triggered);
                }
                DeliveryMode::Nmi => self.signals.push_back(Signal::Nmi { cpu }),
                DeliveryMode::Init => {
                    self.lapics[index].init();
                    self.signals.push_back(Signal::Init { cpu });
                }
                DeliveryMode::Startup => self.signals.push_back(Signal::Startup { cpu, page: ipi.vector }),
                mode => {
                    self.unmodelled.insert(Unmodelled::Message(mode));
                }
            }
        }
    }

    /// Requests for the processors and the caller, oldest first.
    pub fn take_signals(&mut self) -> VecDeque<Signal> {
        std::mem::take(&mut self.signals)
    }

    pub fn has_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// Whether the local APIC's base-address register enables it.
    pub fn lapic_enabled(&self, cpu: CpuId) -> bool {
        self.lapics[usize::from(cpu.0)].enabled()
    }

    pub fn set_lapic_enabled(&mut self, cpu: CpuId, enabled: bool) {
        self.lapics[usize::from(cpu.0)].set_enabled(enabled);
        self.settle();
    }

    pub fn lapic_id(&self, cpu: CpuId) -> u8 {
        self.lapics[usize::from(cpu.0)].id()
    }

    // --- timers under control ---

    pub fn timer_mode(&self) -> TimerMode {
        self.timers
    }

    pub fn set_timer_mode(&mut self, now: u64, mode: TimerMode) {
        self.advance(now);
        // What a timer would have done under control does not come after it. What was held back does.
        if self.timers != TimerMode::Held {
            let tick = self.tick(PIT_HZ);
            self.pit.take_rise(tick);
            let bus = self.tick(LAPIC_HZ);
            for lapic in &mut self.lapics {
                lapic.advance(bus, false);
            }
        }
        self.timers = mode;
        self.settle();
    }

    /// The timer that interrupts this processor, as the guest has set things up.
    pub fn armed_timer(&self, cpu: CpuId) -> Option<TimerSource> {
        let lapic = &self.lapics[usize::from(cpu.0)];
        let routed =
            |irq: u8, input: u8| self.pic.unmasked(irq) && lapic.passes_pic() || self.ioapic.unmasked(input);
        if lapic.timer_armed() {
            Some(TimerSource::LocalApic)
        } else if routed(TIMER_IRQ, CASCADE_IRQ) && self.pit.periodic() {
            Some(TimerSource::Pit)
        } else if routed(RTC_IRQ, RTC_IRQ) && self.rtc.periodic() {
            Some(TimerSource::RealTimeClock)
        } else {
            None
        }
    }

    /// The time at which the timer that interrupts this processor expires, as the guest has set things up. While timers are
    /// held it may have passed.
    pub fn expiry(&self, cpu: CpuId) -> Option<u64> {
        let (tick, hz) = match self.armed_timer(cpu)? {
            TimerSource::LocalApic => (self.lapics[usize::from(cpu.0)].next_expiry(), LAPIC_HZ),
            TimerSource::Pit => (self.pit.next_rise(), PIT_HZ),
            TimerSource::RealTimeClock => (self.rtc.next_event(), RTC_HZ),
        };
        tick.map(|tick| self.clock.when(tick, hz))
    }

    /// The timer that interrupts this processor expires, at `now`, which must not be before [`Board::expiry`]. All others stay
    /// as they are. For timers that are held.
    pub fn expire(&mut self, now: u64, cpu: CpuId) -> Option<TimerSource> {
        self.advance(now);
        let source = self.armed_timer(cpu)?;
        match source {
            TimerSource::LocalApic => {
                let bus = self.tick(LAPIC_HZ);
                self.lapics[usize::from(cpu.0)].advance(bus, true);
            }
            TimerSource::Pit => {
                if self.pit.take_rise(self.clock.ticks(self.now, PIT_HZ)) {
                    self.pulse(TIMER_IRQ);
                }
            }
            TimerSource::RealTimeClock => {
                self.rtc.advance(self.clock.ticks(self.now, RTC_HZ));
                self.pulse(RTC_IRQ);
            }
        }
        self.settle();
        Some(source)
    }

    /// Lets the timer of this processor expire once, as if its time had come.
    pub fn raise_timer(&mut self, now: u64, cpu: CpuId) -> Option<TimerSource> {
        self.advance(now);
        let source = self.armed_timer(cpu)?;
        match source {
            TimerSource::LocalApic => self.lapics[usize::from(cpu.0)].fire_timer(),
            TimerSource::Pit => self.pulse(TIMER_IRQ),
            TimerSource::RealTimeClock => {
                self.rtc.fire_periodic();
                self.pulse(RTC_IRQ);
            }
        }
        self.settle();
        Some(source)
    }

    // --- the caller's side of the consoles ---

    /// Types a text on the keyboard. The characters that have no key on a US layout come back.
    pub fn type_text(&mut self, now: u64, text: &str) -> Vec<char> {
        self.advance(now);
        let unknown =
            text.chars().filter(|&character| !self.i8042.keyboard.type_character(character)).collect();
        self.settle();
        unknown
    }

    pub fn press_key(&mut self, now: u64, key: Key) {
        self.advance(now);
        self.i8042.keyboard.press(key);
        self.settle();
    }

    /// Key events that the guest has not read.
    pub fn keys_waiting(&self) -> usize {
        self.i8042.keyboard.waiting()
    }

    /// Bytes for the first serial port.
    pub fn serial_input(&mut self, now: u64, bytes: &[u8]) {
        self.advance(now);
        self.serial[0].feed(bytes);
        self.settle();
    }

    /// Whether the guest asked to be told of what arrives at the first serial port.
    pub fn serial_listens(&self) -> bool {
        self.serial[0].listens()
    }

    /// Bytes the guest sent through the first serial port since last asked.
    pub fn take_serial_output(&mut self) -> Vec<u8> {
        self.serial[0].take_output()
    }

    /// Bytes written to the debug port 0xe9 since last asked.
    pub fn take_debug_output(&mut self) -> Vec<u8> {
        self.debug_output.take()
    }

    pub fn vga(&self) -> &Vga {
        &self.vga
    }

    pub fn vga_mut(&mut self) -> &mut Vga {
        &mut self.vga
    }

    /// Disk `unit`: primary master and slave, secondary master and slave.
    pub fn disk(&self, unit: usize) -> Option<&Disk> {
        self.ide.get(unit / 2)?.disk(unit % 2)
    }

    pub fn disk_mut(&mut self, unit: usize) -> Option<&mut Disk> {
        self.ide.get_mut(unit / 2)?.disk_mut(unit % 2)
    }

    /// The clock's time of day and date, packed decimal, for the BIOS.
    pub fn date(&self) -> ([u8; 3], [u8; 4]) {
        self.rtc.packed(self.tick(RTC_HZ))
    }

    pub fn seconds_of_day(&self) -> u32 {
        self.rtc.seconds_of_day(self.tick(RTC_HZ))
    }

    /// Accesses that no chip here models, each once.
    pub fn unmodelled(&self) -> &BTreeSet<Unmodelled> {
        &self.unmodelled
    }

    /// The last power-on self-test code.
    pub fn post_code(&self) -> u8 {
        self.post_code
    }

    fn a20(&mut self, open: bool) {
        if !open {
            self.unmodelled.insert(Unmodelled::A20Closed);
        }
    }

    // --- ports ---

    pub fn port_read(&mut self, now: u64, _cpu: CpuId, port: u16, size: u8) -> u32 {
        self.advance(now);
        if let 0x1f0 | 0x170 = port {
            let micros = self.tick(MICROS);
            let ide = &mut self.ide[usize::from(port == 0x170)];
            let value = ide.data_read(size, micros);
            if ide.at_boundary() {
                self.settle();
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
        self.settle();
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
        self.settle();
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

    // --- memory-mapped chips ---

    pub fn mmio_claims(&self, addr: PhysAddr) -> bool {
        matches!(addr.page().0, lapic::BASE | ioapic::BASE)
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
            self.settle();
        }
        let value = u64::from(word.unwrap_or(0)) >> (8 * (addr.0 & 3));
        if size >= 8 { value } else { value & ((1 << (8 * size)) - 1) }
    }

    /// The chips take whole registers; a narrower write is taken for one, as processors of the time do not define it.
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
        self.settle();
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

#[cfg(test)]
mod tests;

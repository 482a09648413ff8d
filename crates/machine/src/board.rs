//! The board: which chip answers which port, which line leads where, and when the next of them has something
//! to do.
//!
//! Contract: time is the number of instructions executed and never runs backwards. Every access first lets
//! the chips catch up with it; `advance` does so without an access and need not be called before
//! `next_event`. Requests that concern the processors or the whole machine are queued as `Signal`s. Plain
//! data: a clone is an independent board. Limits: the A20 gate is always open; its registers read back. A
//! register that is not modelled reads as all ones, and the access is kept in `unmodelled`. Registers of
//! chips that a PC may lack and that kernels look for read as all ones too, without being kept: the chip is
//! not there.

mod messages;
mod ports;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use trace::{CpuId, PhysAddr};

use crate::devices::clock::{Clock, LAPIC_HZ, PIT_HZ, RTC_HZ};
use crate::devices::disk::Disk;
use crate::devices::i8042::I8042;
use crate::devices::ide::Ide;
use crate::devices::ioapic::IoApic;
use crate::devices::keyboard::Key;
use crate::devices::lapic::{DeliveryMode, Destination, Ipi, Lapic};
use crate::devices::pic::PicPair;
use crate::devices::pit::Pit;
use crate::devices::power::Power;
use crate::devices::rtc::{self, Rtc};
use crate::devices::serial::{Outbox, Serial};
use crate::devices::vga::Vga;
use crate::transactions::Tsx;
use messages::Transit;

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
    /// The disks: primary master and slave, secondary master and slave.
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

/// What decides when timers interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum TimerMode {
    /// Timers expire by machine time.
    FreeRunning,
    /// The caller lets them expire, with `raise_timer`. Counters still show the time. Expiries that fall into
    /// this time are lost.
    Controlled,
    /// The caller lets them expire, with `expire`. Counters still show the time. What expires meanwhile waits
    /// for the caller; of the expiries of a periodic timer only the first waits.
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
    /// Interrupts between processors that have not arrived.
    transit: Transit,
    debug_output: Outbox,
    unmodelled: BTreeSet<Unmodelled>,
    /// The latest time seen.
    now: u64,
    /// Caches, a function of the chips: the time of the next event, and which processors have an interrupt.
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
        (&self.signals, &self.transit, self.now).hash(state);
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
            transit: Transit::default(),
            debug_output: Outbox::default(),
            unmodelled: BTreeSet::new(),
            now: 0,
            next_event: None,
            pending: 0,
        };
        board.rtc.describe(config.memory_bytes, present, config.cpus);
        board.pit.initialise_as_bios(0);
        board.lapics[0].initialise_as_bios();
        board.carry_interrupt_lines();
        // Last, so that edges of the other chips' start-up are forgotten.
        board.pic.initialise_as_bios();
        board.carry_interrupt_lines();
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
        self.carry_interrupt_lines();
    }

    /// Carries the chips' outputs to the interrupt controllers and refreshes the caches.
    fn carry_interrupt_lines(&mut self) {
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
        self.carry_interrupt_lines();
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
            if self.transit.keeps(from, cpu, ipi.mode, ipi.vector) {
                continue;
            }
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
        self.carry_interrupt_lines();
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
        self.carry_interrupt_lines();
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

    /// The time at which the timer that interrupts this processor expires, as the guest has set things up.
    /// While timers are held it may have passed.
    pub fn expiry(&self, cpu: CpuId) -> Option<u64> {
        let (tick, hz) = match self.armed_timer(cpu)? {
            TimerSource::LocalApic => (self.lapics[usize::from(cpu.0)].next_expiry(), LAPIC_HZ),
            TimerSource::Pit => (self.pit.next_rise(), PIT_HZ),
            TimerSource::RealTimeClock => (self.rtc.next_event(), RTC_HZ),
        };
        tick.map(|tick| self.clock.when(tick, hz))
    }

    /// Lets the timer that interrupts this processor expire at `now`, which must not be before
    /// [`Board::expiry`]. All others stay as they are. For timers that are held.
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
        self.carry_interrupt_lines();
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
        self.carry_interrupt_lines();
        Some(source)
    }

    // --- the caller's side of the consoles ---

    /// Types a text on the keyboard. The characters that have no key on a US layout come back.
    pub fn type_text(&mut self, now: u64, text: &str) -> Vec<char> {
        self.advance(now);
        let unknown =
            text.chars().filter(|&character| !self.i8042.keyboard.type_character(character)).collect();
        self.carry_interrupt_lines();
        unknown
    }

    pub fn press_key(&mut self, now: u64, key: Key) {
        self.advance(now);
        self.i8042.keyboard.press(key);
        self.carry_interrupt_lines();
    }

    /// Key events that the guest has not read.
    pub fn keys_waiting(&self) -> usize {
        self.i8042.keyboard.waiting()
    }

    /// Bytes for the first serial port.
    pub fn serial_input(&mut self, now: u64, bytes: &[u8]) {
        self.advance(now);
        self.serial[0].feed(bytes);
        self.carry_interrupt_lines();
    }

    /// Whether the guest asked for an interrupt when something arrives at the first serial port.
    pub fn serial_listens(&self) -> bool {
        self.serial[0].listens()
    }

    /// Whether the guest has printed what nobody has taken yet.
    pub(crate) fn has_output(&self) -> bool {
        self.serial[0].has_output() || !self.debug_output.is_empty()
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

    // --- memory-mapped chips ---
}

#[cfg(test)]
mod tests;

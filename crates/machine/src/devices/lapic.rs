//! The local APIC of one processor.
//!
//! Contract: the board moves vectors into it (`deliver`) and asks for the most urgent one (`pending`); a
//! write to the interrupt command register comes back as an `Ipi` for the board to distribute. Timer time
//! enters as ticks of the bus clock. Source: Intel SDM volume 3, chapter "Advanced programmable interrupt
//! controller (APIC)". Not modelled: x2APIC, performance-counter, thermal and CMCI entries (they keep what is
//! written), SMI, arbitration.

use super::bits::VectorSet;
use serde::{Deserialize, Serialize};

pub const BASE: u64 = 0xfee0_0000;
/// Where the number of the processor is, from there.
pub const NUMBER: u64 = 0x20;
const VERSION: u32 = 0x0005_0014;
const MASKED: u32 = 1 << 16;
const ILLEGAL_REGISTER: u32 = 1 << 7;
const ILLEGAL_VECTOR_SENT: u32 = 1 << 5;
const ILLEGAL_VECTOR_RECEIVED: u32 = 1 << 6;

/// Entries of the local vector table, by their distance from register 0x320.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Local {
    Timer = 0,
    Lint0 = 3,
    Lint1 = 4,
    Error = 5,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum DeliveryMode {
    Fixed,
    LowestPriority,
    Smi,
    Nmi,
    Init,
    Startup,
    ExtInt,
    Reserved,
}

impl DeliveryMode {
    pub fn from_bits(bits: u32) -> Self {
        match bits & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            4 => Self::Nmi,
            5 => Self::Init,
            6 => Self::Startup,
            7 => Self::ExtInt,
            _ => Self::Reserved,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Destination {
    Myself,
    All,
    Others,
    Physical(u8),
    Logical(u8),
}

/// An inter-processor interrupt, or a message of the I/O APIC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Ipi {
    pub mode: DeliveryMode,
    pub destination: Destination,
    pub vector: u8,
    pub level_triggered: bool,
}

/// What a register write asks of the rest of the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    None,
    Send(Ipi),
    /// A level-triggered vector was finished; the I/O APIC must look at its line again.
    EndOfInterrupt(u8),
    Unmodelled,
}

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Lapic {
    id: u8,
    /// Global enable of the base-address MSR.
    enabled: bool,
    task_priority: u8,
    logical: u8,
    format: u32,
    spurious: u32,
    in_service: VectorSet,
    requests: VectorSet,
    triggers: VectorSet,
    error: u32,
    error_pending: u32,
    command: [u32; 2],
    local: [u32; 6],
    timer_initial: u32,
    timer_divide: u32,
    /// Tick of the bus clock at which the timer was armed; `None` when stopped.
    timer_started: Option<u64>,
    timer_seen: u64,
}

impl Lapic {
    pub fn new(id: u8) -> Self {
        Self {
            id,
            enabled: true,
            task_priority: 0,
            logical: 0,
            format: !0,
            spurious: 0xff,
            in_service: VectorSet::default(),
            requests: VectorSet::default(),
            triggers: VectorSet::default(),
            error: 0,
            error_pending: 0,
            command: [0; 2],
            local: [MASKED; 6],
            timer_initial: 0,
            timer_divide: 0,
            timer_started: None,
            timer_seen: 0,
        }
    }

    /// Virtual wire mode, as a BIOS leaves the boot processor.
    pub fn initialise_as_bios(&mut self) {
        self.spurious = 0x1ff;
        self.local[Local::Lint0 as usize] = 0x700;
        self.local[Local::Lint1 as usize] = 0x400;
    }

    /// The state after an INIT message: everything but the id is as at power-up.
    pub fn init(&mut self) {
        *self = Self { enabled: self.enabled, ..Self::new(self.id) };
    }

    pub fn id(&self) -> u8 {
        self.id
    }

    /// The global enable bit of the base-address MSR.
    pub fn enabled(&self) -> bool {
        self.enabled
    }

    pub fn set_enabled(&mut self, enabled: bool) {
        if self.enabled && !enabled {
            self.init();
        }
        self.enabled = enabled;
    }

    fn software_enabled(&self) -> bool {
        self.enabled && self.spurious & 0x100 != 0
    }

    /// Whether interrupts of the 8259 pair pass through to the processor.
    pub fn passes_pic(&self) -> bool {
        let lint0 = self.local[Local::Lint0 as usize];
        !self.enabled || lint0 & MASKED == 0 && DeliveryMode::from_bits(lint0 >> 8) == DeliveryMode::ExtInt
    }

    fn processor_priority(&self) -> u8 {
        let serving = self.in_service.highest().unwrap_or(0);
        if self.task_priority >> 4 >= serving >> 4 { self.task_priority } else { serving & 0xf0 }
    }

    /// The vector that would be taken now.
    pub fn pending(&self) -> Option<u8> {
        if !self.software_enabled() {
            return None;
        }
        self.requests.highest().filter(|vector| vector >> 4 > self.processor_priority() >> 4)
    }

    pub fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.pending()?;
        self.requests.remove(vector);
        self.in_service.insert(vector);
        Some(vector)
    }

    /// The vector the processor reports when a request vanished between signal and acknowledge.
    pub fn spurious_vector(&self) -> u8 {
        self.spurious as u8
    }

    /// The task priority as control register 8 shows it.
    pub fn task_priority(&self) -> u8 {
        self.task_priority
    }

    /// Accepts a fixed interrupt.
    pub fn deliver(&mut self, vector: u8, level_triggered: bool) {
        if !self.software_enabled() {
            return;
        }
        if vector < 16 {
            return self.raise_error(ILLEGAL_VECTOR_RECEIVED);
        }
        self.requests.insert(vector);
        if level_triggered {
            self.triggers.insert(vector);
        } else {
            self.triggers.remove(vector);
        }
    }

    fn raise_error(&mut self, bits: u32) {
        if self.error_pending & bits == bits {
            return;
        }
        self.error_pending |= bits;
        let entry = self.local[Local::Error as usize];
        // A vector below 16 here would report itself for ever.
        if entry & MASKED == 0 && entry as u8 >= 16 {
            self.deliver(entry as u8, false);
        }
    }

    /// Whether a logical destination of eight bits addresses this APIC.
    pub fn matches_logical(&self, destination: u8) -> bool {
        if self.format >> 28 == 0xf {
            self.logical & destination != 0
        } else {
            let cluster = destination >> 4;
            (cluster == 0xf || self.logical >> 4 == cluster) && self.logical & destination & 0xf != 0
        }
    }

    /// Rank for lowest-priority delivery.
    pub fn arbitration(&self) -> u8 {
        self.processor_priority()
    }

    // --- timer ---

    fn divisor(&self) -> u64 {
        match self.timer_divide & 0b1011 {
            0b0000 => 2,
            0b0001 => 4,
            0b0010 => 8,
            0b0011 => 16,
            0b1000 => 32,
            0b1001 => 64,
            0b1010 => 128,
            _ => 1,
        }
    }

    fn periodic(&self) -> bool {
        self.local[Local::Timer as usize] >> 17 & 1 != 0
    }

    fn current_count(&self, tick: u64) -> u32 {
        let Some(started) = self.timer_started else { return 0 };
        let passed = tick.saturating_sub(started) / self.divisor();
        let initial = u64::from(self.timer_initial);
        let left = if self.periodic() { initial - passed % initial } else { initial.saturating_sub(passed) };
        left as u32
    }

    /// The tick at which the timer expires next.
    pub fn next_expiry(&self) -> Option<u64> {
        let started = self.timer_started?;
        let period = u64::from(self.timer_initial) * self.divisor();
        let edge = if self.periodic() {
            started + (self.timer_seen.saturating_sub(started) / period + 1) * period
        } else {
            started + period
        };
        (edge > self.timer_seen).then_some(edge)
    }

    /// Whether an expiry would interrupt.
    pub fn timer_armed(&self) -> bool {
        self.software_enabled()
            && self.timer_started.is_some()
            && self.local[Local::Timer as usize] & MASKED == 0
    }

    /// Lets time pass for the timer; `fire` says whether an expiry may interrupt by itself.
    pub fn advance(&mut self, tick: u64, fire: bool) {
        if let Some(expiry) = self.next_expiry()
            && expiry <= tick
            && fire
        {
            self.fire_timer();
        }
        self.timer_seen = self.timer_seen.max(tick);
    }

    /// The interrupt of one expiry.
    pub fn fire_timer(&mut self) {
        let entry = self.local[Local::Timer as usize];
        if entry & MASKED == 0 {
            self.deliver(entry as u8, false);
        }
    }

    // --- registers ---

    /// The register that holds the number of the processor.
    #[must_use]
    pub fn number(&self) -> u32 {
        u32::from(self.id) << 24
    }

    pub fn read(&mut self, offset: u32, tick: u64) -> (u32, Effect) {
        let value = match offset {
            0x020 => self.number(),
            0x030 => VERSION,
            0x080 => u32::from(self.task_priority),
            0x090 => 0,
            0x0a0 => u32::from(self.processor_priority()),
            0x0b0 => 0,
            0x0d0 => u32::from(self.logical) << 24,
            0x0e0 => self.format,
            0x0f0 => self.spurious,
            0x100..0x180 if offset & 0xf == 0 => self.in_service.word(offset >> 4 & 7),
            0x180..0x200 if offset & 0xf == 0 => self.triggers.word(offset >> 4 & 7),
            0x200..0x280 if offset & 0xf == 0 => self.requests.word(offset >> 4 & 7),
            0x280 => self.error,
            0x300 => self.command[0],
            0x310 => self.command[1],
            0x320..=0x370 if offset & 0xf == 0 => self.local[(offset as usize - 0x320) >> 4],
            0x380 => self.timer_initial,
            0x390 => self.current_count(tick),
            0x3e0 => self.timer_divide,
            _ => {
                self.raise_error(ILLEGAL_REGISTER);
                return (0, Effect::Unmodelled);
            }
        };
        (value, Effect::None)
    }

    pub fn write(&mut self, offset: u32, value: u32, tick: u64) -> Effect {
        match offset {
            0x020 => self.id = (value >> 24) as u8,
            0x030 => {} // read only; kernels probe by writing
            0x080 => self.task_priority = value as u8,
            0x0b0 => return self.end_of_interrupt(),
            0x0d0 => self.logical = (value >> 24) as u8,
            0x0e0 => self.format = value | 0x0fff_ffff,
            0x0f0 => {
                self.spurious = value & 0x3ff;
                if !self.software_enabled() {
                    for entry in &mut self.local {
                        *entry |= MASKED;
                    }
                }
            }
            0x280 => {
                self.error = self.error_pending;
                self.error_pending = 0;
            }
            0x300 => {
                self.command[0] = value & !0x1000;
                return self.send(value);
            }
            0x310 => self.command[1] = value,
            0x320..=0x370 if offset & 0xf == 0 => {
                let forced = if self.software_enabled() { 0 } else { MASKED };
                self.local[(offset as usize - 0x320) >> 4] = value & 0x3_f7ff | forced;
            }
            0x380 => {
                self.timer_initial = value;
                self.timer_started = (value != 0).then_some(tick);
                self.timer_seen = tick;
            }
            0x390 => {}
            0x3e0 => {
                let left = self.current_count(tick);
                self.timer_divide = value & 0b1011;
                if self.timer_started.is_some() && left != 0 {
                    // Keep the current count, at its new pace.
                    let gone = u64::from(self.timer_initial - left.min(self.timer_initial));
                    self.timer_started = Some(tick.saturating_sub(gone * self.divisor()));
                }
            }
            _ => {
                self.raise_error(ILLEGAL_REGISTER);
                return Effect::Unmodelled;
            }
        }
        Effect::None
    }

    fn end_of_interrupt(&mut self) -> Effect {
        let Some(vector) = self.in_service.highest() else { return Effect::None };
        self.in_service.remove(vector);
        if self.triggers.contains(vector) { Effect::EndOfInterrupt(vector) } else { Effect::None }
    }

    fn send(&mut self, command: u32) -> Effect {
        let mode = DeliveryMode::from_bits(command >> 8);
        let vector = command as u8;
        let asserted = command >> 14 & 1 != 0;
        let target = (self.command[1] >> 24) as u8;
        if matches!(mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority) && vector < 16 {
            self.raise_error(ILLEGAL_VECTOR_SENT);
            return Effect::None;
        }
        // INIT with the level de-asserted only synchronises arbitration ids, which are not modelled.
        if mode == DeliveryMode::Init && !asserted {
            return Effect::None;
        }
        if matches!(mode, DeliveryMode::Smi | DeliveryMode::ExtInt | DeliveryMode::Reserved) {
            return Effect::Unmodelled;
        }
        let destination = match command >> 18 & 3 {
            0 if command >> 11 & 1 != 0 => Destination::Logical(target),
            0 => Destination::Physical(target),
            1 => Destination::Myself,
            2 => Destination::All,
            _ => Destination::Others,
        };
        Effect::Send(Ipi { mode, destination, vector, level_triggered: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled() -> Lapic {
        let mut lapic = Lapic::new(3);
        lapic.write(0xf0, 0x1ff, 0);
        lapic
    }

    #[test]
    fn serves_by_priority_class() {
        let mut lapic = enabled();
        lapic.deliver(0x31, false);
        lapic.deliver(0x52, false);
        assert_eq!(lapic.acknowledge(), Some(0x52));
        lapic.deliver(0x5f, false);
        assert_eq!(lapic.pending(), None, "the same class does not nest");
        lapic.deliver(0x60, false);
        assert_eq!(lapic.acknowledge(), Some(0x60));
        assert_eq!(lapic.read(0xa0, 0).0, 0x60);
        assert_eq!(lapic.read(0x120, 0).0 | lapic.read(0x130, 0).0, 0x0004_0001);
        assert_eq!(lapic.write(0xb0, 0, 0), Effect::None);
        assert_eq!(lapic.pending(), None);
        lapic.write(0xb0, 0, 0);
        assert_eq!(lapic.acknowledge(), Some(0x5f));
        lapic.write(0xb0, 0, 0);
        lapic.write(0x80, 0x30, 0);
        assert_eq!(lapic.pending(), None, "the task priority holds 0x31 back");
        lapic.write(0x80, 0x20, 0);
        assert_eq!(lapic.pending(), Some(0x31));
    }

    #[test]
    fn a_disabled_apic_takes_nothing_and_masks_its_table() {
        let mut lapic = Lapic::new(0);
        lapic.deliver(0x40, false);
        assert_eq!(lapic.pending(), None);
        lapic.write(0x320, 0x40, 0);
        assert_eq!(lapic.read(0x320, 0).0, 0x1_0040);
        lapic.initialise_as_bios();
        assert!(lapic.passes_pic());
        lapic.write(0xf0, 0xff, 0);
        assert!(!lapic.passes_pic());
        lapic.set_enabled(false);
        assert!(lapic.passes_pic(), "with the APIC off, the pin is the interrupt line");
    }

    #[test]
    fn reports_level_triggered_ends() {
        let mut lapic = enabled();
        lapic.deliver(0x41, true);
        lapic.acknowledge();
        assert_eq!(lapic.write(0xb0, 0, 0), Effect::EndOfInterrupt(0x41));
        assert_eq!(lapic.write(0xb0, 0, 0), Effect::None);
    }

    #[test]
    fn decodes_commands() {
        use Destination::*;
        let table = [
            (0x0002_0000, 0x0000_4030, Some((DeliveryMode::Fixed, Physical(0), 0x30))),
            (0x0200_0000, 0x0000_4830, Some((DeliveryMode::Fixed, Logical(2), 0x30))),
            (0x0100_0000, 0x0000_c500, Some((DeliveryMode::Init, Physical(1), 0))),
            (0x0100_0000, 0x0000_8500, None),
            (0x0100_0000, 0x0000_4607, Some((DeliveryMode::Startup, Physical(1), 7))),
            (0, 0x0004_4041, Some((DeliveryMode::Fixed, Myself, 0x41))),
            (0, 0x0008_4041, Some((DeliveryMode::Fixed, All, 0x41))),
            (0, 0x000c_4400, Some((DeliveryMode::Nmi, Others, 0))),
            (0, 0x0000_4005, None),
        ];
        for (high, low, expected) in table {
            let mut lapic = enabled();
            lapic.write(0x310, high, 0);
            let sent = match lapic.write(0x300, low, 0) {
                Effect::Send(ipi) => Some((ipi.mode, ipi.destination, ipi.vector)),
                _ => None,
            };
            assert_eq!(sent, expected, "{high:#x} {low:#x}");
        }
    }

    #[test]
    fn illegal_things_end_in_the_error_register() {
        let mut lapic = enabled();
        lapic.write(0x370, 0x33, 0);
        assert_eq!(lapic.write(0x300, 0x4005, 0), Effect::None);
        assert_eq!(lapic.read(0x280, 0).0, 0, "latched by a write only");
        lapic.write(0x280, 0, 0);
        assert_eq!(lapic.read(0x280, 0).0, ILLEGAL_VECTOR_SENT);
        assert_eq!(lapic.acknowledge(), Some(0x33));
        assert_eq!(lapic.read(0x400, 0), (0, Effect::Unmodelled));
    }

    #[test]
    fn the_timer_counts_once_or_for_ever() {
        // LVT entry, divide, initial, then (tick, current count, expired)
        type Points = &'static [(u64, u32, bool)];
        let table: [(u32, u32, u32, Points); 3] = [
            (0x40, 0xb, 100, &[(0, 100, false), (99, 1, false), (100, 0, true), (300, 0, false)]),
            (0x2_0040, 0xb, 100, &[(99, 1, false), (100, 100, true), (150, 50, false), (420, 80, true)]),
            (0x2_0040, 0x3, 10, &[(159, 1, false), (160, 10, true), (321, 10, true)]),
        ];
        for (entry, divide, initial, points) in table {
            let mut lapic = enabled();
            lapic.write(0x320, entry, 0);
            lapic.write(0x3e0, divide, 0);
            lapic.write(0x380, initial, 0);
            for &(tick, count, expired) in points {
                lapic.advance(tick, true);
                assert_eq!(lapic.read(0x390, tick).0, count, "{entry:#x} at {tick}");
                assert_eq!(lapic.acknowledge().is_some(), expired, "{entry:#x} at {tick}");
                lapic.write(0xb0, 0, tick);
            }
        }
    }

    #[test]
    fn logical_destinations_match_flat_and_clustered() {
        let mut lapic = enabled();
        lapic.write(0xd0, 0x0400_0000, 0);
        assert!(lapic.matches_logical(0x06) && !lapic.matches_logical(0x03));
        lapic.write(0xe0, 0x0fff_ffff, 0);
        lapic.write(0xd0, 0x2400_0000, 0);
        assert!(lapic.matches_logical(0x2c) && !lapic.matches_logical(0x1c) && lapic.matches_logical(0xff));
    }
}

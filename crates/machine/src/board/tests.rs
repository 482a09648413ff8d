//! The chips together, through the board's ports and lines.

use super::*;
use crate::devices::{ioapic, lapic};
use crate::x86::flags::IF;
use crate::{Activity, Events, Machine, Seg, Segment, StopSet};

const CPU: CpuId = CpuId(0);

fn board() -> Board {
    Board::new(BoardConfig { cpus: 2, ..BoardConfig::default() })
}

fn out(board: &mut Board, now: u64, script: &[(u16, u8)]) {
    for &(port, value) in script {
        board.port_write(now, CPU, port, 1, u32::from(value));
    }
}

/// 100 Hz on the interval timer, through the 8259 pair at vector 0x20.
fn ticking() -> Board {
    let mut board = board();
    let pics = [(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 1), (0x21, 0xfe)];
    out(&mut board, 0, &pics);
    out(&mut board, 0, &[(0x43, 0x34), (0x40, (11_932 & 0xff) as u8), (0x40, (11_932 >> 8) as u8)]);
    board
}

#[test]
fn timer_ticks_arrive_by_instruction_count() {
    let mut board = ticking();
    let mut arrivals = Vec::new();
    for _ in 0..3 {
        let event = board.next_event().unwrap();
        board.advance(event - 1);
        assert!(!board.interrupt_pending(CPU));
        board.advance(event);
        assert!(board.interrupt_pending(CPU));
        assert!(!board.interrupt_pending(CpuId(1)));
        assert_eq!(board.acknowledge(event, CPU), 0x20);
        out(&mut board, event, &[(0x20, 0x20)]);
        arrivals.push(event);
    }
    assert_eq!(arrivals, [1_000_016, 2_000_031, 3_000_046]);
}

#[test]
fn under_control_only_the_caller_ticks() {
    let mut board = ticking();
    board.set_timer_mode(500_000, TimerMode::Controlled);
    assert_eq!(board.next_event(), None);
    board.advance(90_000_000);
    assert!(!board.interrupt_pending(CPU));
    for now in [90_000_000, 90_000_001] {
        assert_eq!(board.raise_timer(now, CPU), Some(TimerSource::Pit));
        assert_eq!(board.acknowledge(now, CPU), 0x20);
        board.raise_timer(now, CPU);
        assert!(!board.interrupt_pending(CPU), "the first tick is still in service");
        out(&mut board, now, &[(0x20, 0x20)]);
        assert_eq!(board.acknowledge(now, CPU), 0x20);
        out(&mut board, now, &[(0x20, 0x20)]);
        assert!(!board.interrupt_pending(CPU));
    }
    board.set_timer_mode(95_000_000, TimerMode::FreeRunning);
    assert!(board.next_event().is_some_and(|event| event > 95_000_000 && event < 96_100_000));
}

#[test]
fn held_timers_wait_for_the_caller_one_by_one() {
    let mut board = Board::new(BoardConfig { cpus: 3, ..BoardConfig::default() });
    for cpu in 0..3 {
        lapic(&mut board, cpu, 0xf0, 0x1ff);
        lapic(&mut board, cpu, 0x3e0, 0xb);
        // Once, every time, and not at all.
        lapic(&mut board, cpu, 0x320, [0x40, 0x2_0041, 0x1_0042][usize::from(cpu)]);
        lapic(&mut board, cpu, 0x380, [50_000, 10_000, 1][usize::from(cpu)]);
    }
    board.set_timer_mode(0, TimerMode::Held);
    let expiries = |board: &Board| [0, 1, 2].map(|cpu| board.expiry(CpuId(cpu)));
    assert_eq!(board.next_event(), None);
    assert_eq!(expiries(&board), [Some(5_000), Some(1_000), None]);
    board.advance(20_500);
    assert_eq!(expiries(&board), [Some(5_000), Some(1_000), None]);
    assert_eq!(board.pending_elsewhere(CpuId(7)), 0);
    assert_eq!(board.expire(20_500, CpuId(1)), Some(TimerSource::LocalApic));
    assert_eq!(board.pending_elsewhere(CpuId(7)), 0b10);
    assert_eq!(expiries(&board), [Some(5_000), Some(21_000), None]);
    assert_eq!(board.expire(20_500, CpuId(0)), Some(TimerSource::LocalApic));
    assert_eq!(board.expire(20_500, CpuId(2)), None);
    assert_eq!(board.pending_elsewhere(CpuId(7)), 0b11);
    assert_eq!((board.acknowledge(20_500, CpuId(0)), board.acknowledge(20_500, CpuId(1))), (0x40, 0x41));
    assert_eq!(expiries(&board), [None, Some(21_000), None]);
    board.set_timer_mode(30_000, TimerMode::FreeRunning);
    board.advance(30_000);
    assert_eq!(board.pending_elsewhere(CpuId(7)), 0, "vector 0x41 is still in service");
    assert_eq!(board.next_event(), Some(31_000));
}

fn lapic(board: &mut Board, cpu: u8, register: u64, value: u32) {
    board.mmio_write(0, CpuId(cpu), PhysAddr(lapic::BASE + register), 4, u64::from(value));
}

#[test]
fn processors_start_each_other() {
    let mut board = board();
    lapic(&mut board, 0, 0x310, 1 << 24);
    lapic(&mut board, 0, 0x300, 0xc500);
    lapic(&mut board, 0, 0x300, 0x8500);
    lapic(&mut board, 0, 0x300, 0x4607);
    let cpu = CpuId(1);
    assert_eq!(board.take_signals(), [Signal::Init { cpu }, Signal::Startup { cpu, page: 7 }]);
}

#[test]
fn interrupts_between_processors() {
    let mut board = board();
    lapic(&mut board, 1, 0xf0, 0x1ff);
    lapic(&mut board, 0, 0x300, 0xc_4041);
    assert_eq!([0, 1].map(|cpu| board.interrupt_pending(CpuId(cpu))), [false, true]);
    assert_eq!(board.acknowledge(0, CpuId(1)), 0x41);
    lapic(&mut board, 1, 0xb0, 0);
    assert!(!board.interrupt_pending(CpuId(1)));
    assert_eq!(board.mmio_read(0, CpuId(1), PhysAddr(lapic::BASE + 0x20), 4), 1 << 24);
}

/// Interrupts that are held are on their way until they are let arrive, each by itself; those to oneself, and
/// NMIs, are not held.
#[test]
fn interrupts_between_processors_can_be_held() {
    let mut board = board();
    for cpu in [0, 1] {
        lapic(&mut board, cpu, 0xf0, 0x1ff);
    }
    let pending = |board: &Board| [0, 1].map(|cpu| board.interrupt_pending(CpuId(cpu)));
    board.hold_messages(true);
    for message in [0xc_4041, 0xc_4052, 0xc_4041, 0x4_4063, 0xc_4400] {
        lapic(&mut board, 0, 0x300, message);
    }
    let to = CpuId(1);
    assert_eq!(board.in_transit(), [(to, 0x41), (to, 0x52), (to, 0x41)]);
    assert_eq!((pending(&board), board.take_signals().len()), ([true, false], 1));
    assert!(board.arrive(to, 0x52) && !board.arrive(to, 0x52));
    assert_eq!(board.acknowledge(0, to), 0x52);
    assert_eq!(board.in_transit(), [(to, 0x41), (to, 0x41)]);
    lapic(&mut board, 1, 0xb0, 0);
    board.hold_messages(false);
    assert_eq!((board.in_transit().len(), pending(&board)), (0, [true, true]));
}

#[test]
fn device_lines_reach_the_io_apic() {
    let mut board = board();
    lapic(&mut board, 1, 0xf0, 0x1ff);
    for (select, value) in [(0x10 + 8, 0x24), (0x10 + 9, 1 << 24)] {
        board.mmio_write(0, CPU, PhysAddr(ioapic::BASE), 4, select);
        board.mmio_write(0, CPU, PhysAddr(ioapic::BASE + 0x10), 4, value);
    }
    out(&mut board, 0, &[(0x3fc, 8), (0x3f9, 1)]);
    board.serial_input(0, b"x");
    assert_eq!([0, 1].map(|cpu| board.interrupt_pending(CpuId(cpu))), [false, true]);
    assert_eq!(board.acknowledge(0, CpuId(1)), 0x24);
}

#[test]
fn the_local_timer_can_be_armed_and_raised() {
    let mut board = board();
    out(&mut board, 0, &[(0x21, 0xff), (0xa1, 0xff)]);
    assert_eq!(board.armed_timer(CPU), None);
    for (register, value) in [(0x3e0, 0xb), (0x320, 0x2_0020), (0x380, 10_000_000)] {
        lapic(&mut board, 0, register, value);
    }
    assert_eq!(board.armed_timer(CPU), Some(TimerSource::LocalApic));
    board.advance(1_000_000);
    assert_eq!(board.acknowledge(1_000_000, CPU), 0x20);
    lapic(&mut board, 0, 0xb0, 0);
    board.set_timer_mode(1_000_000, TimerMode::Controlled);
    board.raise_timer(1_000_000, CPU);
    assert_eq!(board.acknowledge(1_000_000, CPU), 0x20);
}

#[test]
fn keys_arrive_one_interrupt_each() {
    let mut board = board();
    assert_eq!(board.type_text(0, "aß"), ['ß']);
    let mut codes = Vec::new();
    while let Some(event) = board.next_event().filter(|_| board.keys_waiting() > 0 || codes.len() < 2) {
        board.advance(event);
        if board.interrupt_pending(CPU) {
            let vector = board.acknowledge(event, CPU);
            if vector == 9 {
                codes.push(board.port_read(event, CPU, 0x60, 1));
            }
            out(&mut board, event, &[(0x20, 0x20)]);
        }
    }
    assert_eq!(codes, [0x1e, 0x9e]);
}

#[test]
fn switches_off_in_every_usual_way() {
    use Signal::*;
    type Writes = &'static [(u16, u8, u32)];
    let table: [(Writes, Option<Signal>); 9] = [
        (&[(0x604, 2, 0x2000)], Some(PowerOff)),
        (&[(0xb004, 2, 0x2000)], Some(PowerOff)),
        (&[(0x604, 2, 0x0001)], None),
        (&[(0xf4, 1, 0x31)], Some(Exit { status: 0x63 })),
        (&[(0xcf9, 1, 0x06)], Some(Reset)),
        (&[(0x64, 1, 0xfe)], Some(Reset)),
        (&[(0x92, 1, 0x03)], Some(Reset)),
        (&[(BIOS_PORT, 1, 0)], Some(BiosCall { cpu: CPU })),
        (&[(0x8900, 1, 0x53), (0x8900, 1, 0x54)], None),
    ];
    for (writes, expected) in table {
        let mut board = board();
        for &(port, size, value) in writes {
            board.port_write(0, CPU, port, size, value);
        }
        assert_eq!(board.take_signals().pop_front(), expected, "{writes:x?}");
    }
    let mut board = board();
    for &byte in SHUTDOWN_WORD {
        assert!(!board.has_signals());
        board.port_write(0, CPU, 0x8900, 1, u32::from(byte));
    }
    assert_eq!(board.take_signals(), [PowerOff]);
}

#[test]
fn what_is_not_modelled_is_noted_once() {
    let mut board = board();
    assert_eq!(board.port_read(0, CPU, 0x1234, 2), 0xffff);
    board.port_read(0, CPU, 0x1234, 1);
    board.port_write(0, CPU, 0x92, 1, 0);
    let expected = [
        Unmodelled::Port(0x1234, Direction::Read),
        Unmodelled::Port(0x1235, Direction::Read),
        Unmodelled::A20Closed,
    ];
    assert!(board.unmodelled().iter().eq(&expected));
    assert_eq!(board.port_read(0, CPU, 0xcfc, 4), !0, "no PCI device is not an unknown register");
    assert_eq!(board.unmodelled().len(), 3);
}

#[test]
fn wide_accesses_reach_neighbouring_registers() {
    let mut board = board();
    board.port_write(0, CPU, 0x3d4, 2, 0x070e);
    board.port_write(0, CPU, 0x3d4, 2, 0xcf0f);
    assert_eq!(board.vga().cursor(), 0x7cf);
}

#[test]
fn output_taken_or_not_the_hash_is_the_same() {
    let mut board = board();
    out(&mut board, 0, &[(0x3f8, b'a'), (0xe9, b'b')]);
    let before = digest(&board);
    assert_eq!((board.take_serial_output(), board.take_debug_output()), (b"a".to_vec(), b"b".to_vec()));
    assert_eq!(digest(&board), before);
    out(&mut board, 0, &[(0x3ff, 1)]);
    assert_ne!(digest(&board), before);
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn nothing_a_guest_does_to_the_ports_breaks_the_board() {
    use crate::devices::disk::Disk;
    let known: Vec<u16> =
        [0x20..=0x21, 0x40..=0x43, 0x60..=0x64, 0x70..=0x71, 0xa0..=0xa1, 0x170..=0x177, 0x1f0..=0x1f7]
            .into_iter()
            .chain([0x2f8..=0x2ff, 0x3c0..=0x3da, 0x376..=0x376, 0x3f6..=0x3ff, 0x4d0..=0x4d1, 0xcf8..=0xcff])
            .flatten()
            .collect();
    for seed in 1..=20u64 {
        let disks = [Some(Disk::new(vec![1; 5_000])), None, None, Some(Disk::new(vec![2; 100]))];
        let mut board = Board::new(BoardConfig { cpus: 3, disks, ..BoardConfig::default() });
        let mut twin = board.clone();
        for board in [&mut board, &mut twin] {
            let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
            let mut now = 0;
            for _ in 0..20_000 {
                let bits = numbers.next();
                let cpu = CpuId((bits >> 8 & 0xff) as u8 % 3);
                let size = 1u8 << ((bits >> 16 & 0xff) % 3);
                let port = if bits & 7 == 0 {
                    (bits >> 24) as u16
                } else {
                    known[(bits >> 24) as usize % known.len()]
                };
                let value = numbers.next() as u32;
                now += u64::from(value) % 5_000;
                let register =
                    PhysAddr(if bits & 8 == 0 { lapic::BASE } else { ioapic::BASE } + (bits >> 32 & 0x3ff));
                match bits >> 60 {
                    0..5 => board.port_write(now, cpu, port, size, value),
                    5..9 => drop(board.port_read(now, cpu, port, size)),
                    9 | 10 => board.mmio_write(now, cpu, PhysAddr(register.0 & !0xf), 4, value.into()),
                    11 => drop(board.mmio_read(now, cpu, register, size)),
                    12 if board.interrupt_pending(cpu) => drop(board.acknowledge(now, cpu)),
                    13 => drop(board.type_text(now, "xY")),
                    14 => board.serial_input(now, b"z"),
                    _ => drop(board.raise_timer(now, cpu)),
                }
                while let Some(event) = board.next_event().filter(|&event| event <= now) {
                    board.advance(now);
                    assert!(board.next_event() != Some(event), "an event at {event} does not pass");
                }
            }
        }
        assert_eq!(digest(&board), digest(&twin));
    }
}

fn digest(board: &Board) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    board.hash_into(&mut hasher);
    hasher.finish()
}

/// Processors in flat 32-bit mode, about to execute `code` with interrupts as `enabled`; `vector` leads to
/// `handler`.
fn flat_machine(cpus: u8, code: &[u8], vector: u64, handler: &[u8], enabled: bool) -> Machine {
    let mut machine = Machine::new(BoardConfig { cpus, memory_bytes: 1 << 20, ..BoardConfig::default() });
    machine.memory.write(PhysAddr(0x1000), code);
    machine.memory.write(PhysAddr(0x1100), handler);
    machine.memory.write_u64(PhysAddr(0x2000 + 8 * vector), 0x0000_8e00_0008_1100);
    machine.memory.write_u64(PhysAddr(0x4008), 0x00cf_9b00_0000_ffff);
    for cpu in &mut machine.cpus {
        cpu.cr0 = 0x11;
        cpu.segments = [Segment::flat(16, false, 0); 6];
        cpu.segments[Seg::Cs as usize] = Segment::flat(8, true, 0);
        (cpu.gdtr.base, cpu.gdtr.limit, cpu.idtr.base, cpu.idtr.limit) = (0x4000, 15, 0x2000, 0x7ff);
        (cpu.rip, cpu.regs[4], cpu.activity) = (0x1000, 0x8000, Activity::Running);
        cpu.flags.put(IF, enabled);
    }
    machine
}

const RESULT: PhysAddr = PhysAddr(0x3000);

#[test]
fn a_sleeping_processor_does_not_sleep_through_the_ticks_of_another() {
    const TICKS: u32 = 5;
    // hlt; jmp back
    let code = [0xf4, 0xeb, 0xfd];
    // inc dword [0x3000]; mov dword [0xfee000b0], 0; iret
    let handler = [0xff, 0x05, 0, 0x30, 0, 0, 0xc7, 0x05, 0xb0, 0, 0xe0, 0xfe, 0, 0, 0, 0, 0xcf];
    let mut machine = flat_machine(2, &code, 0x40, &handler, true);
    machine.board.port_write(0, CPU, 0x21, 1, 0xff);
    for (register, value) in [(0xf0, 0x1ff), (0x3e0, 0xb), (0x320, 0x2_0040), (0x380, 10_000_000)] {
        lapic(&mut machine.board, 1, register, value);
    }
    // Each tick costs the second processor a handler of three instructions, a jump and a halt.
    machine.run_all(1000, &StopSet::after(2 + 5 * u64::from(TICKS)), &mut Events::off());
    assert_eq!(machine.memory.read_u32(RESULT), TICKS);
    assert!((5_000_000..6_100_000).contains(&machine.instructions()), "{}", machine.instructions());
}

#[test]
fn an_interrupt_held_back_by_sti_comes_one_instruction_later() {
    const TIMES: u8 = 200;
    // mov ecx, 200; again: cli; mov dx, 0x3f9; xor al, al; out dx, al; mov al, 2; out dx, al; sti
    let mut code =
        vec![0xb9, TIMES, 0, 0, 0, 0xfa, 0x66, 0xba, 0xf9, 0x03, 0x30, 0xc0, 0xee, 0xb0, 2, 0xee, 0xfb];
    let expected = 0x1000 + code.len() as u32 + 1;
    code.extend([0x90; 20]); // nop ...
    code.extend([0xe2, 0xde, 0xf4]); // loop again; hlt
    let handler = [
        0x8b, 0x04, 0x24, 0x09, 0x05, 0x00, 0x30, 0, 0, // mov eax, [esp]; or [0x3000], eax
        0xff, 0x05, 0x04, 0x30, 0, 0, // inc dword [0x3004]
        0x66, 0xba, 0xfa, 0x03, 0xec, 0xb0, 0x20, 0xe6, 0x20,
        0xcf, // mov dx, 0x3fa; in al, dx; mov al, 0x20; out 0x20, al; iret
    ];
    let mut machine = flat_machine(1, &code, 0x24, &handler, false);
    out(&mut machine.board, 0, &[(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 1), (0x21, 0xef), (0x3fc, 8)]);
    machine.run(CPU, &StopSet::after(1_000_000), &mut Events::off());
    let seen = [RESULT, RESULT.offset(4)].map(|at| machine.memory.read_u32(at));
    assert_eq!(seen, [expected, TIMES.into()], "always after the first of the no-operations");
}

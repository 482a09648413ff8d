//! Services called as their stubs call them.

use super::*;
use crate::board::BoardConfig;
use crate::devices::disk::{Disk, SECTOR_SIZE};
use crate::devices::vga::{Screen, TEXT_BASE, TEXT_SIZE};
use crate::x86::state::Segment;
use trace::CpuId;

const STACK: u64 = 0x6000;
/// IF and the bit that is always set.
const FLAGS: u16 = 0x0202;

struct Bench {
    cpu: Cpu,
    memory: Memory,
    board: Board,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let bytes: Vec<u8> = (0..2000).flat_map(|sector| [sector as u8; SECTOR_SIZE]).collect();
        let disks = [Some(Disk::new(bytes)), None, None, None];
        let board = Board::new(BoardConfig { memory_bytes: 32 << 20, disks, ..BoardConfig::default() });
        let mut memory = Memory::new(32 << 20);
        rom::install(&mut memory, &board);
        let mut cpu = Cpu::reset(true);
        cpu.regs = [0; 16];
        cpu.segments[Seg::Ss as usize] = Segment::real(0);
        Self { cpu, memory, board, now: 0 }
    }

    /// INT `vector` with these registers; whether carry and zero came back.
    fn int(&mut self, vector: u8, registers: &[(usize, u64)]) -> (bool, bool) {
        for &(register, value) in registers {
            self.cpu.regs[register] = value;
        }
        self.cpu.regs[reg::SP] = STACK;
        self.memory.write_u16(PhysAddr(STACK + 4), FLAGS);
        self.cpu.segments[Seg::Cs as usize] = Segment::real(rom::ROM_SEGMENT);
        self.cpu.rip = u64::from(rom::stub(vector)) + 2;
        assert!(call(self.now, CpuId(0), &mut self.cpu, &mut self.memory, &mut self.board));
        let image = u32::from(self.memory.read_u16(PhysAddr(STACK + 4)));
        (image & CF != 0, image & ZF != 0)
    }

    fn ax(&self) -> u16 {
        self.cpu.regs[reg::AX] as u16
    }

    fn row(&self, row: usize) -> String {
        let mut text = vec![0; TEXT_SIZE];
        self.memory.read(PhysAddr(TEXT_BASE), &mut text);
        Screen::render(&text, self.board.vga().start()).row(row)
    }

    /// Lets time pass until a key has gone through INT 09h.
    fn serve_keys(&mut self) {
        while self.board.keys_waiting() > 0 || self.board.interrupt_pending(CpuId(0)) {
            self.now = self.board.next_event().unwrap().max(self.now);
            self.board.advance(self.now);
            while self.board.interrupt_pending(CpuId(0)) {
                let vector = self.board.acknowledge(self.now, CpuId(0));
                self.int(vector, &[]);
            }
        }
    }
}

#[test]
fn sizes_and_equipment() {
    let mut bench = Bench::new();
    bench.int(0x12, &[]);
    assert_eq!(bench.ax(), 639);
    bench.int(0x11, &[]);
    assert_eq!(bench.ax(), 0x0422);
    assert_eq!(bench.int(0x15, &[(reg::AX, 0x8800)]), (false, false));
    assert_eq!(bench.ax(), 31 << 10);
    bench.int(0x15, &[(reg::AX, 0xe801)]);
    assert_eq!((bench.ax(), bench.cpu.regs[reg::BX] as u16), (15 << 10, 256));
    assert_eq!(bench.int(0x15, &[(reg::AX, 0x5300)]), (true, false));
    assert_eq!(bench.ax() >> 8, 0x86);
}

#[test]
fn the_memory_map_comes_entry_by_entry() {
    let mut bench = Bench::new();
    let mut ranges = Vec::new();
    bench.cpu.regs[reg::BX] = 0;
    loop {
        let registers = [(reg::AX, 0xe820), (reg::DX, 0x534d_4150), (reg::CX, 24), (reg::DI, 0x5000)];
        bench.cpu.segments[Seg::Es as usize] = Segment::real(0);
        assert_eq!(bench.int(0x15, &registers), (false, false));
        assert_eq!((bench.cpu.regs[reg::AX], bench.cpu.regs[reg::CX]), (0x534d_4150, 20));
        let word = |offset: u64| bench.memory.read_u64(PhysAddr(0x5000 + offset));
        ranges.push((word(0), word(8), bench.memory.read_u32(PhysAddr(0x5010))));
        if bench.cpu.regs[reg::BX] == 0 {
            break;
        }
    }
    assert_eq!(ranges[0], (0, 0x9_fc00, 1));
    assert_eq!(ranges[3], (1 << 20, 31 << 20, 1));
    assert_eq!(ranges.len(), 7);
}

#[test]
fn disks_read_by_geometry_and_by_number() {
    let mut bench = Bench::new();
    bench.cpu.segments[Seg::Es as usize] = Segment::real(0x1000);
    bench.cpu.segments[Seg::Ds as usize] = Segment::real(0);
    // cylinder 1, head 2, sector 3: (1 * 16 + 2) * 63 + 2
    let chs = [(reg::AX, 0x0202), (reg::CX, 0x0103), (reg::DX, 0x0280), (reg::BX, 0x10)];
    assert_eq!(bench.int(0x13, &chs), (false, false));
    assert_eq!(bench.ax(), 2);
    let first = (18 * 63 + 2) as u8;
    assert_eq!([0x1_0010, 0x1_0210].map(|at| bench.memory.read_u8(PhysAddr(at))), [first, first + 1]);

    let packet = [16, 0, 3, 0, 0, 0, 0, 0x20, 0xe8, 3, 0, 0, 0, 0, 0, 0];
    bench.memory.write(PhysAddr(0x5000), &packet);
    assert_eq!(bench.int(0x13, &[(reg::AX, 0x4200), (reg::DX, 0x80), (reg::SI, 0x5000)]), (false, false));
    assert_eq!(bench.memory.read_u8(PhysAddr(0x2_0400)), 1002u32 as u8);

    bench.memory.write_u8(PhysAddr(0x2_0000), 0x77);
    bench.int(0x13, &[(reg::AX, 0x4300), (reg::DX, 0x80), (reg::SI, 0x5000)]);
    assert_eq!(bench.board.disk(0).unwrap().read(1000).unwrap()[0], 0x77);
}

#[test]
fn disks_describe_themselves() {
    let mut bench = Bench::new();
    // AX, BX and DX going in; AX, CX, carry coming out
    let table = [
        (0x0800, 0, 0x80, 0x0000, 0x003f, false),
        (0x1500, 0, 0x80, 0x0300, 0x0000, false),
        (0x1500, 0, 0x81, 0x0000, 0x1234, false),
        (0x4100, 0x55aa, 0x80, 0x2100, 0x0001, false),
        (0x0201, 0, 0x81, 0x0101, 0x1234, true),
        (0x0201, 0, 0x00, 0x8001, 0x1234, true),
        (0x0500, 0, 0x80, 0x0100, 0x1234, true),
        (0x0000, 0, 0x80, 0x0000, 0x1234, false),
    ];
    for (ax, bx, dx, ax_after, cx_after, carry) in table {
        let (returned, _) =
            bench.int(0x13, &[(reg::AX, ax), (reg::BX, bx), (reg::CX, 0x1234), (reg::DX, dx)]);
        assert_eq!(
            (bench.ax(), bench.cpu.regs[reg::CX], returned),
            (ax_after, cx_after, carry),
            "{ax:#x} {dx:#x}"
        );
    }
    bench.cpu.segments[Seg::Ds as usize] = Segment::real(0);
    bench.memory.write_u16(PhysAddr(0x5000), 30);
    bench.int(0x13, &[(reg::AX, 0x4800), (reg::DX, 0x80), (reg::SI, 0x5000)]);
    assert_eq!(
        (bench.memory.read_u64(PhysAddr(0x5010)), bench.memory.read_u16(PhysAddr(0x5018))),
        (2000, 512)
    );
}

#[test]
fn the_screen_scrolls_as_text_is_written() {
    let mut bench = Bench::new();
    for line in 0..26 {
        for byte in format!("line {line}\r\n").bytes() {
            bench.int(0x10, &[(reg::AX, 0x0e00 | u64::from(byte)), (reg::BX, 7)]);
        }
    }
    assert_eq!([0, 23, 24].map(|row| bench.row(row)), ["line 2", "line 25", ""]);
    bench.int(0x10, &[(reg::AX, 0x0300), (reg::BX, 0)]);
    assert_eq!(bench.cpu.regs[reg::DX] as u16, 0x1800);
    bench.int(0x10, &[(reg::AX, 0x0200), (reg::BX, 0), (reg::DX, 0x050a)]);
    bench.int(0x10, &[(reg::AX, 0x0941), (reg::BX, 0x1e), (reg::CX, 3)]);
    assert_eq!(bench.row(5), "line 7    AAA");
    assert_eq!(bench.board.vga().cursor(), 5 * 80 + 10);
    bench.int(0x10, &[(reg::AX, 0x0800), (reg::BX, 0)]);
    assert_eq!(bench.ax(), 0x1e41);
    bench.int(0x10, &[(reg::AX, 0x0701), (reg::BX, 0x700), (reg::CX, 0x0500), (reg::DX, 0x064f)]);
    assert_eq!([4, 5, 6, 7].map(|row| bench.row(row)), ["line 6", "", "line 7    AAA", "line 9"]);
    bench.int(0x10, &[(reg::AX, 0x0003)]);
    assert_eq!(bench.row(4), "");
}

#[test]
fn keys_wait_in_the_queue() {
    let mut bench = Bench::new();
    assert_eq!(bench.int(0x16, &[(reg::AX, 0x0100)]), (false, true));
    bench.int(0x16, &[(reg::AX, 0x0000)]);
    assert_eq!(bench.cpu.rip, u64::from(rom::wait(0x16)), "the caller waits");
    assert_eq!(bench.board.type_text(0, "aB\n"), []);
    bench.serve_keys();
    assert_eq!(bench.int(0x16, &[(reg::AX, 0x0100)]), (false, false));
    let keys = [(); 3].map(|()| {
        bench.int(0x16, &[(reg::AX, 0x0000)]);
        bench.ax()
    });
    assert_eq!(keys, [0x1e61, 0x3042, 0x1c0d]);
    assert_eq!(bench.int(0x16, &[(reg::AX, 0x1100)]), (false, true));
}

#[test]
fn time_passes() {
    let mut bench = Bench::new();
    bench.int(0x1a, &[(reg::AX, 0x0400)]);
    assert_eq!((bench.cpu.regs[reg::CX], bench.cpu.regs[reg::DX]), (0x2025, 0x0101));
    bench.int(0x08, &[]);
    bench.int(0x1a, &[(reg::AX, 0x0000)]);
    assert_eq!((bench.cpu.regs[reg::CX], bench.cpu.regs[reg::DX], bench.ax()), (0, 1, 0));
    bench.int(0x15, &[(reg::AX, 0x8600), (reg::CX, 0), (reg::DX, 1000)]);
    assert_eq!(bench.cpu.rip, u64::from(rom::wait(0x15)));
    bench.now += bench.board.clock().micros(1000);
    bench.int(0x15, &[]);
    assert_eq!(bench.cpu.rip, u64::from(rom::stub(0x15)) + 2);
}

#[test]
fn serial_output_and_block_moves() {
    let mut bench = Bench::new();
    for byte in *b"hi" {
        bench.int(0x14, &[(reg::AX, 0x0100 | u64::from(byte)), (reg::DX, 0)]);
    }
    assert_eq!(bench.board.take_serial_output(), b"hi");
    bench.memory.write(PhysAddr(0x7000), b"data");
    bench.cpu.segments[Seg::Es as usize] = Segment::real(0);
    bench.memory.write_u64(PhysAddr(0x5010), 0x0000_9300_7000_ffff);
    bench.memory.write_u64(PhysAddr(0x5018), 0x0000_9320_0000_ffff);
    bench.int(0x15, &[(reg::AX, 0x8700), (reg::SI, 0x5000), (reg::CX, 2)]);
    assert_eq!(bench.memory.read_u32(PhysAddr(0x20_0000)).to_le_bytes(), *b"data");
}

#[test]
fn only_the_rom_may_call() {
    let mut bench = Bench::new();
    bench.cpu.segments[Seg::Cs as usize] = Segment::real(0);
    bench.cpu.rip = u64::from(rom::stub(0x10)) + 2;
    assert!(!call(0, CpuId(0), &mut bench.cpu, &mut bench.memory, &mut bench.board));
}

#[test]
fn no_registers_a_caller_can_have_break_a_service() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        bits
    };
    let mut bench = Bench::new();
    for vector in [0x08, 0x09, 0x10, 0x13, 0x14, 0x15, 0x16, 0x18, 0x19, 0x1a, 0x70, 0xff] {
        for function in 0..=0xff_u64 {
            for _ in 0..4 {
                for seg in [Seg::Es, Seg::Ds] {
                    bench.cpu.segments[seg as usize] = Segment::real(next() as u16);
                }
                let registers =
                    [reg::BX, reg::CX, reg::DX, reg::SI, reg::DI, reg::BP].map(|register| (register, next()));
                bench.int(vector, &registers);
                bench.int(
                    vector,
                    &[(reg::AX, function << 8 | next() & 0xff), (reg::DX, 0x80), (reg::CX, next() & 0x3f)],
                );
            }
        }
    }
}

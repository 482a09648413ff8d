//! The log of accesses: complete, at addresses of 32 and of 64 bits.

use machine::{Events, Kinds, LeaveOut, LogEntry, Machine, Stop, StopSet, Watchpoint};
use trace::{AccessKind, CpuId, PhysAddr, VirtAddr};

/// A thousand times: EAX is read from 0x2000 and added to 0x2004.
const LOOP: &[u8] = &[
    0xb9, 0xe8, 0x03, 0x00, 0x00, // mov ecx, 1000
    0xa1, 0x00, 0x20, 0x00, 0x00, // mov eax, [0x2000]
    0x01, 0x05, 0x04, 0x20, 0x00, 0x00, // add [0x2004], eax
    0x49, // dec ecx
    0x75, 0xf2, // jnz
    0xf4, // hlt
];

/// Where memory begins again for 64-bit code.
const HIGH: u64 = 0xffff_ff80_0000_0000;

/// A thousand times, in 64-bit code: EAX is read from 0x2000 and added to 0x2004.
const LONG_LOOP: &[u8] = &[
    0xb9, 0xe8, 0x03, 0x00, 0x00, // mov ecx, 1000
    0x8b, 0x05, 0xf5, 0x1f, 0x00, 0x00, // mov eax, [rip + 0x1ff5], which is 0x2000
    0x01, 0x05, 0xf3, 0x1f, 0x00, 0x00, // add [rip + 0x1ff3], eax, which is 0x2004
    0xff, 0xc9, // dec ecx
    0x75, 0xf0, // jnz
    0xf4, // hlt
];

struct Logged {
    machine: Machine,
    events: Events,
    /// The accesses of a round.
    round: [(u64, AccessKind, u64); 2],
}

fn logged(long: bool) -> Logged {
    let (mut machine, code, base, second) = if long {
        (Machine::flat64(1 << 20), LONG_LOOP, HIGH, 11)
    } else {
        (Machine::flat32(1 << 20), LOOP, 0, 10)
    };
    machine.memory.write(PhysAddr(0), code);
    machine.cpus[0].rip = base;
    let mut events = Events::off();
    events.accesses = true;
    let stop = machine.run(CpuId(0), &StopSet::default().on(Kinds::HALT), &mut events);
    assert_eq!(stop, Stop::Halt);
    let add = (base + 0x2004, AccessKind::Update, base + second);
    let round = [(base + 0x2000, AccessKind::Read, base + 5), add];
    Logged { machine, events, round }
}

fn place(event: LogEntry) -> (u64, AccessKind, u64) {
    match event {
        LogEntry::Access(access) => {
            assert_eq!(access.physical, Some(PhysAddr(access.address.0 & 0xffff)));
            (access.address.0, access.kind, access.pc.0)
        }
        LogEntry::Walk(_) | LogEntry::Happening(..) => unreachable!("not asked for"),
    }
}

#[test]
fn every_access_is_logged() {
    for long in [false, true] {
        let Logged { machine, mut events, round } = logged(long);
        let mut seen = Vec::new();
        machine.drain(&mut events, |event| seen.push(place(event)));
        assert_eq!(seen, round.repeat(1000));
        assert!(events.is_empty());
    }
}

#[test]
fn what_some_code_accesses_is_left_out() {
    for long in [false, true] {
        let Logged { machine: mut from, round: [read, add], .. } = logged(long);
        let base = read.2 - 5;
        // MOV to ECX, MOV from memory, ADD to memory. The jump at the end is the block's last operation.
        for (unlogged, leave_out, left) in [
            (base..base + 0x100, LeaveOut::Nothing, 2000),
            (base..base + 0x100, LeaveOut::Code, 0),
            (base..add.2, LeaveOut::Code, 1000),
            (base + 0x100..base + 0x200, LeaveOut::Code, 2000),
            (base..base + 0x100, LeaveOut::Everything, 0),
            (base + 0x100..base + 0x200, LeaveOut::Everything, 0),
        ] {
            let mut events = Events::off();
            (events.accesses, events.leave_out, events.unlogged) = (true, leave_out, [unlogged].into());
            from.cpus[0].rip = base;
            from.cpus[0].activity = machine::x86::state::Activity::Running;
            let stop = from.run(CpuId(0), &StopSet::default().on(Kinds::HALT), &mut events);
            assert_eq!(stop, Stop::Halt);
            let mut seen = Vec::new();
            from.drain(&mut events, |event| seen.push(place(event)));
            assert!(seen.iter().all(|access| [read, add].contains(access)));
            // What is accessed for the first time is logged all the same.
            let first = if leave_out == LeaveOut::Nothing { 0 } else { 2 };
            assert!((left..=left + first).contains(&seen.len()), "{leave_out:?}, long mode {long}: {left}");
        }
    }
}

/// The interrupt controller's register with the number of the processor.
const NUMBER: u64 = 0xfee0_0020;

#[test]
fn the_number_of_the_processor_is_read_alike_in_both_tiers() {
    let code = [
        &[0xb9, 0x0a, 0x00, 0x00, 0x00][..], // mov ecx, 10
        &[0xbb, 0x00, 0x00, 0xe0, 0xfe],     // mov ebx, 0xfee00000
        &[0x8b, 0x43, 0x20],                 // mov eax, [ebx + 0x20]
        &[0x01, 0xc2],                       // add edx, eax
        &[0x49],                             // dec ecx
        &[0x75, 0xf8],                       // jnz
        &[0xf4],                             // hlt
    ]
    .concat();
    let run = |compile: bool, until: &StopSet| {
        let mut machine = Machine::flat32(1 << 20);
        machine.memory.write(PhysAddr(0), &code);
        machine.cpus[0].rip = 0;
        if !compile {
            machine.compile_nothing();
        }
        let mut events = Events::off();
        events.accesses = true;
        let stop = machine.run(CpuId(0), until, &mut events);
        let mut seen = Vec::new();
        machine.drain(&mut events, |event| seen.push(event));
        (stop, machine.state_hash(), seen)
    };
    let halt = StopSet::default().on(Kinds::HALT);
    let both = [true, false].map(|compile| run(compile, &halt));
    assert_eq!(both[0], both[1]);
    let (stop, _, seen) = &both[0];
    assert_eq!((stop, seen.len()), (&Stop::Halt, 10));
    let read =
        |entry: &LogEntry| matches!(entry, LogEntry::Access(access) if access.address == VirtAddr(NUMBER));
    assert!(seen.iter().all(read));
    // Whoever watches it is stopped.
    let watch = Watchpoint { start: VirtAddr(NUMBER), bytes: 4, reads: true, writes: false };
    let (stop, _, seen) = run(true, &halt.watching(watch));
    assert!(matches!(stop, Stop::Watchpoint(access) if access.address == VirtAddr(NUMBER)), "{stop}");
    assert_eq!(seen.len(), 1);
}

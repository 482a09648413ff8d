//! The log of accesses: complete, at addresses of 32 and of 64 bits.

use machine::{Events, Kinds, LogEntry, Machine, Stop, StopSet};
use trace::{AccessKind, CpuId, PhysAddr};

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

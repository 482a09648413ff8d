//! The log of accesses: complete, or each access once.

use machine::{Event, Events, Kinds, Machine, Rw, Stop, StopSet};
use std::collections::BTreeSet;
use trace::{CpuId, PhysAddr};

/// A thousand times: EAX is read from 0x2000 and added to 0x2004.
const LOOP: &[u8] = &[
    0xb9, 0xe8, 0x03, 0x00, 0x00, // mov ecx, 1000
    0xa1, 0x00, 0x20, 0x00, 0x00, // mov eax, [0x2000]
    0x01, 0x05, 0x04, 0x20, 0x00, 0x00, // add [0x2004], eax
    0x49, // dec ecx
    0x75, 0xf2, // jnz
    0xf4, // hlt
];

fn logged() -> (Machine, Events) {
    let mut machine = Machine::flat32(1 << 20);
    machine.memory.write(PhysAddr(0), LOOP);
    let mut events = Events::off();
    events.accesses = true;
    let stop = machine.run(CpuId(0), &StopSet::default().on(Kinds::HALT), &mut events);
    assert_eq!(stop, Stop::Halt);
    (machine, events)
}

fn place(event: Event) -> (u64, Rw, u64) {
    match event {
        Event::Access(access) => (access.address.0, access.rw, access.pc.0),
        Event::Happening(..) => unreachable!("not asked for"),
    }
}

#[test]
fn every_access_is_told() {
    let (machine, mut events) = logged();
    let mut seen = Vec::new();
    machine.drain(&mut events, |event| seen.push(place(event)));
    let round = [(0x2000, Rw::Read, 5), (0x2004, Rw::Read, 10), (0x2004, Rw::Write, 10)];
    assert_eq!(seen, round.repeat(1000));
    assert!(events.is_empty());
}

#[test]
fn distinct_accesses_are_told_seldom_but_all() {
    let (machine, mut events) = logged();
    let mut seen = Vec::new();
    machine.drain_distinct(&mut events, |event| seen.push(place(event)));
    let expected = [(0x2000, Rw::Read, 5), (0x2004, Rw::Read, 10), (0x2004, Rw::Write, 10)];
    assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), expected.into_iter().collect());
    // The loop is compiled twice: with the instruction before it, and alone.
    assert!(seen.len() <= 2 * expected.len(), "{} accesses", seen.len());
    assert!(events.is_empty());
}

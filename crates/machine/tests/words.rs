//! Runs that stop before an access to one of a set of words, logs that count instructions, and logs of page
//! walks.

mod guests;

use guests::{DATA, GUESTS, WINDOW};
use machine::board::BoardConfig;
use machine::x86::state::reg;
use machine::{Access, Events, LogEntry, Machine, Stop, StopSet, WordSet};
use std::sync::Arc;
use trace::{CpuId, PhysAddr, VirtAddr};

const BSP: CpuId = CpuId(0);
const INSTRUCTIONS: u64 = 60_000;

/// Every access of a run, each with the number of its instruction, found by single steps.
fn by_single_steps(mut machine: Machine, instructions: u64) -> (Vec<(u64, Access)>, u64) {
    machine.compile_nothing();
    let mut events = Events::off();
    events.accesses = true;
    let mut accesses = Vec::new();
    while machine.cpus[0].executed < instructions {
        let executed = machine.cpus[0].executed;
        assert_eq!(machine.run(BSP, &StopSet::after(1), &mut events), Stop::Budget);
        machine.drain(&mut events, |event| {
            if let LogEntry::Access(access) = event {
                accesses.push((executed, access));
            }
        });
    }
    (accesses, machine.state_hash())
}

fn words() -> WordSet {
    let data = PhysAddr(DATA.into());
    let offsets = [0x100, 0x2000, 0x2ffc, 0x31f8];
    let mut words: WordSet = offsets.iter().map(|offset| PhysAddr(data.0 + offset)).collect();
    words.insert(PhysAddr(u64::from(WINDOW) + 0x1000));
    words
}

#[test]
fn a_run_stops_before_every_access_to_the_words_and_nowhere_else() {
    let words = Arc::new(words());
    for guest in GUESTS {
        println!("{}", guest.name);
        let (accesses, hash) = by_single_steps((guest.boot)(), INSTRUCTIONS);
        let touches = |a: &Access| words.first_of(a.physical.unwrap(), a.size.into()).is_some();
        let mut expected: Vec<u64> = accesses.iter().filter(|(_, a)| touches(a)).map(|(n, _)| *n).collect();
        expected.dedup();
        assert!(expected.len() > 100);
        for logged in [false, true] {
            let mut machine = (guest.boot)();
            let mut events = if logged { Events::all() } else { Events::off() };
            let mut stops = Vec::new();
            while machine.cpus[0].executed < INSTRUCTIONS {
                let until = StopSet::after(INSTRUCTIONS - machine.cpus[0].executed).before(&words);
                match machine.run(BSP, &until, &mut events) {
                    Stop::Before { access, word } => {
                        assert!(words.contains(word) && touches(&access));
                        assert_eq!(access.pc, VirtAddr(machine.cpus[0].pc()));
                        assert_eq!(access.instruction, Some(machine.cpus[0].executed));
                        stops.push(machine.cpus[0].executed);
                        // What stands before an access can be cloned and goes on in the same way.
                        if stops.len().is_multiple_of(50) {
                            let clone = machine.clone();
                            machine.run(BSP, &until, &mut Events::off());
                            machine.clone_from(&clone);
                        }
                    }
                    Stop::Budget => {}
                    Stop::LogFull => events.clear(),
                    stop => panic!("{stop}"),
                }
                events.clear();
            }
            assert_eq!(stops, expected);
            assert_eq!(machine.state_hash(), hash);
        }
    }
}

#[test]
fn the_set_may_change_from_run_to_run() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let (_, hash) = by_single_steps((guest.boot)(), INSTRUCTIONS);
        let mut machine = (guest.boot)();
        let mut set = Arc::new(WordSet::default());
        let mut stops = 0;
        let mut round = 0;
        while machine.cpus[0].executed < INSTRUCTIONS {
            round += 1;
            match round % 40 {
                0 => set = Arc::new(WordSet::default().with_walks(!set.walks)),
                n => {
                    let offset = n * 0x7b8 % 0x4000;
                    Arc::make_mut(&mut set).insert(PhysAddr(u64::from(DATA) + offset));
                }
            }
            let left = INSTRUCTIONS - machine.cpus[0].executed;
            let until = StopSet::after(left.min(2_000)).before(&set);
            match machine.run(BSP, &until, &mut Events::off()) {
                Stop::Before { word, .. } => {
                    assert!(set.contains(word));
                    stops += 1;
                }
                Stop::Budget => {}
                stop => panic!("{stop}"),
            }
        }
        assert!(stops > 100, "{stops} stops");
        assert_eq!(machine.state_hash(), hash);
    }
}

#[test]
fn a_counted_log_says_which_instruction_made_each_access() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let (accesses, hash) = by_single_steps((guest.boot)(), INSTRUCTIONS);
        let expected: Vec<Access> =
            accesses.into_iter().map(|(n, access)| Access { instruction: Some(n), ..access }).collect();
        let mut machine = (guest.boot)();
        let mut events = Events::counting();
        let mut seen = Vec::new();
        while machine.cpus[0].executed < INSTRUCTIONS {
            let left = INSTRUCTIONS - machine.cpus[0].executed;
            machine.run(BSP, &StopSet::after(left.min(997)), &mut events);
            machine.drain(&mut events, |event| {
                if let LogEntry::Access(access) = event {
                    seen.push(access);
                }
            });
        }
        if let Some(at) = seen.iter().zip(&expected).position(|(a, b)| a != b) {
            panic!("access {at}: {:?} and {:?}", seen[at], expected[at]);
        }
        assert_eq!((seen.len(), machine.state_hash()), (expected.len(), hash));
    }
}

/// Two processors that both count in one word for ever, each at its own place.
fn two() -> Machine {
    let mut machine = Machine::new(BoardConfig { cpus: 2, memory_bytes: 1 << 20, ..BoardConfig::default() });
    // inc eax; inc dword [0x8000]; nop; jmp back
    let code = [0x40, 0xff, 0x05, 0x00, 0x80, 0, 0, 0x90, 0xeb, 0xf6];
    let flat = Machine::flat32(1 << 20);
    for (cpu, at) in machine.cpus.iter_mut().zip([0x1000, 0x2000]) {
        cpu.clone_from(&flat.cpus[0]);
        cpu.rip = at;
    }
    for at in [0x1000, 0x2000] {
        machine.memory.load(PhysAddr(at), &code);
    }
    machine
}

#[test]
fn each_processor_waits_before_its_own_access() {
    let mut machine = two();
    let until = StopSet::after(1_000).before(&Arc::new([PhysAddr(0x8000)].into_iter().collect()));
    let mut go = |cpu: u8| match machine.run(CpuId(cpu), &until, &mut Events::off()) {
        Stop::Before { access, .. } => {
            let value = machine.memory.read_u32(PhysAddr(0x8000));
            (access.pc.0, machine.cpus[usize::from(cpu)].regs[reg::AX], value)
        }
        stop => panic!("{stop}"),
    };
    assert_eq!(go(0), (0x1001, 1, 0));
    assert_eq!(go(1), (0x2001, 1, 0));
    assert_eq!(go(0), (0x1001, 2, 1));
    assert_eq!(go(0), (0x1001, 3, 2));
    assert_eq!(go(1), (0x2001, 2, 3));
    assert_eq!(go(0), (0x1001, 4, 4));
    // A word that joins the set holds back who stands before it already.
    let mut machine = two();
    machine.run(CpuId(0), &StopSet::after(1), &mut Events::off());
    let stop = machine.run(CpuId(0), &until, &mut Events::off());
    assert!(matches!(stop, Stop::Before { .. }), "{stop}");
    assert_eq!(machine.instructions(), 1);
}

#[test]
fn walks_are_logged_and_held_before() {
    // mov rax, [0x5008]; mov [0x5010], rax; mov rax, [0x40000000]; jmp back to the start
    let code: &[u8] = &[
        0x48, 0x8b, 0x04, 0x25, 0x08, 0x50, 0, 0, 0x48, 0x89, 0x04, 0x25, 0x10, 0x50, 0, 0, 0x48, 0x8b, 0x04,
        0x25, 0, 0, 0, 0x40, 0xeb, 0xe6,
    ];
    const BYTES: u64 = 2 << 20;
    let mut machine = Machine::flat64(BYTES);
    machine.memory.load(PhysAddr(0x1000), code);
    machine.cpus[0].rip = 0x1000;
    let (top, gigabytes) = (BYTES - 0x2000, BYTES - 0x1000);
    let mut events = Events::off();
    (events.accesses, events.walks) = (true, true);
    machine.run(BSP, &StopSet::after(3), &mut events);
    let mut seen = Vec::new();
    machine.drain(&mut events, |event| match event {
        LogEntry::Walk(a) => seen.push(("walk", a.address.0, a.physical.unwrap().0, a.size, a.pc.0)),
        LogEntry::Access(a) => {
            let what = a.kind.verb().trim_end_matches('s');
            seen.push((what, a.address.0, a.physical.unwrap().0, a.size, a.pc.0));
        }
        LogEntry::Happening(..) => {}
    });
    let expected = [
        ("walk", 0x5008, top, 8, 0x1000),
        ("walk", 0x5008, gigabytes, 8, 0x1000),
        ("read", 0x5008, 0x5008, 8, 0x1000),
        ("write", 0x5010, 0x5010, 8, 0x1008),
        ("walk", 0x4000_0000, top, 8, 0x1010),
        ("walk", 0x4000_0000, gigabytes + 8, 8, 0x1010),
        ("read", 0x4000_0000, 0x4000_0000, 8, 0x1010),
    ];
    assert_eq!(seen, expected);
    // The entry of the second gigabyte is a word that the third instruction reads.
    let entry: WordSet = [PhysAddr(gigabytes + 8)].into_iter().collect();
    let words = Arc::new(entry.clone().with_walks(true));
    machine.run(BSP, &StopSet::after(100), &mut Events::off());
    for _ in 0..3 {
        match machine.run(BSP, &StopSet::after(100).before(&words), &mut Events::off()) {
            Stop::Before { access, word } => {
                assert_eq!((access.pc, word), (VirtAddr(0x1010), PhysAddr(gigabytes + 8)));
            }
            stop => panic!("{stop}"),
        }
    }
    let plain = Arc::new(entry);
    assert_eq!(machine.run(BSP, &StopSet::after(100).before(&plain), &mut Events::off()), Stop::Budget);
}

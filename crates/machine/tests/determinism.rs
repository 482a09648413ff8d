//! One value, one run: the same machine does the same thing however it is run, cloned, restored or watched.

mod guests;

use guests::{CODE, DATA, GUESTS, WINDOW};
use machine::{Events, Kinds, LogEntry, Machine, Stop, StopSet};
use trace::{CpuId, PhysAddr, VirtAddr};

const BSP: CpuId = CpuId(0);

/// Runs `count` instructions, draining whatever is logged.
fn run(m: &mut Machine, count: u64, events: &mut Events) {
    let end = m.cpus[0].executed + count;
    while m.cpus[0].executed < end {
        let left = end - m.cpus[0].executed;
        match m.run(BSP, &StopSet::after(left), events) {
            Stop::Budget => {}
            Stop::LogFull => m.drain(events, |_| {}),
            stop => panic!("{stop}"),
        }
    }
}

fn quiet(m: &mut Machine, count: u64) {
    run(m, count, &mut Events::off());
}

#[test]
fn the_guest_does_what_it_is_for() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut m = (guest.boot)();
        quiet(&mut m, 1_000_000);
        let ticks = m.memory.read_u32(PhysAddr((DATA + 0x2ffc).into()));
        let (one, other) =
            (m.memory.read_u32(PhysAddr(WINDOW.into())), m.memory.read_u32(PhysAddr(0x9_1000)));
        assert!(m.memory.read_u32(PhysAddr(CODE + 0x1000)) > 1000, "rounds");
        assert_ne!((ticks, one, other), (0, 0, 0));
        assert!(one != 0 && other != 0, "both pages of the window are written");
    }
}

#[test]
fn two_runs_hash_equal_all_the_way() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let (mut a, mut b) = ((guest.boot)(), (guest.boot)());
        for _ in 0..20 {
            quiet(&mut a, 100_000);
            quiet(&mut b, 100_000);
            assert_eq!(a.state_hash(), b.state_hash());
        }
    }
}

#[test]
fn however_a_run_is_cut_it_comes_to_the_same() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut whole = (guest.boot)();
        quiet(&mut whole, 60_000);
        let mut cut = (guest.boot)();
        let mut state = 1u64;
        while cut.cpus[0].executed < 60_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let piece = (state >> 58).max(1).min(60_000 - cut.cpus[0].executed);
            quiet(&mut cut, piece);
        }
        assert_eq!(cut.state_hash(), whole.state_hash());
    }
}

#[test]
fn both_tiers_do_the_same_and_log_the_same() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let (mut fast, mut slow) = ((guest.boot)(), (guest.boot)());
        slow.compile_nothing();
        let (mut a, mut b) = (Events::all(), Events::all());
        for _ in 0..40 {
            run(&mut fast, 5_000, &mut a);
            run(&mut slow, 5_000, &mut b);
            let (mut one, mut other) = (Vec::new(), Vec::new());
            fast.drain(&mut a, |e| one.push(e));
            slow.drain(&mut b, |e| other.push(e));
            if let Some(at) = one.iter().zip(&other).position(|(a, b)| a != b) {
                panic!("event {at}: {:?} and {:?}", one[at], other[at]);
            }
            assert_eq!((one.len(), fast.state_hash()), (other.len(), slow.state_hash()));
        }
    }
}

#[test]
fn watching_changes_nothing() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let (mut plain, mut watched) = ((guest.boot)(), (guest.boot)());
        let mut events = Events::all();
        for _ in 0..10 {
            quiet(&mut plain, 50_000);
            run(&mut watched, 50_000, &mut events);
        }
        assert_eq!(plain.state_hash(), watched.state_hash());
    }
}

#[test]
fn physical_addresses_are_those_of_the_time_of_the_access() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut m = (guest.boot)();
        let mut events = Events::off();
        events.accesses = true;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            run(&mut m, 2_000, &mut events);
            m.drain(&mut events, |event| {
                if let LogEntry::Access(access) = event
                    && access.address == VirtAddr(guest.window)
                {
                    seen.insert(access.physical);
                }
            });
        }
        assert_eq!(seen, [Some(PhysAddr(0x9_0000)), Some(PhysAddr(0x9_1000))].into());
    }
}

#[test]
fn a_clone_runs_as_its_source_does() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut source = (guest.boot)();
        for _ in 0..10 {
            quiet(&mut source, 12_345);
            let mut clone = source.clone();
            assert_eq!(clone.state_hash(), source.state_hash());
            let mut more = source.clone();
            quiet(&mut clone, 50_000);
            quiet(&mut source, 50_000);
            assert_eq!(clone.state_hash(), source.state_hash());
            quiet(&mut more, 50_000);
            assert_eq!(more.state_hash(), source.state_hash());
        }
    }
}

#[test]
fn what_the_source_writes_is_never_seen_by_the_clone() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut source = (guest.boot)();
        quiet(&mut source, 100_000);
        let clone = source.clone();
        let before = clone.state_hash();
        quiet(&mut source, 100_000);
        assert_eq!(clone.state_hash(), before);
        let second = source.clone();
        quiet(&mut source, 1_000);
        assert_eq!(clone.state_hash(), before);
        assert_ne!(second.state_hash(), source.state_hash());
    }
}

#[test]
fn going_back_equals_never_having_left() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut live = (guest.boot)();
        let mut checkpoints = Vec::new();
        let mut after = Vec::new();
        for _ in 0..8 {
            quiet(&mut live, 20_000);
            checkpoints.push(live.clone());
        }
        for checkpoint in &checkpoints {
            let mut m = checkpoint.clone();
            quiet(&mut m, 30_000);
            after.push(m.state_hash());
        }
        for step in 0..40usize {
            let n = step * 5 % checkpoints.len();
            quiet(&mut live, 1_000_000 / 40 + step as u64);
            live.clone_from(&checkpoints[n]);
            assert_eq!(live.state_hash(), checkpoints[n].state_hash());
            let mut events = if step % 2 == 0 { Events::off() } else { Events::all() };
            run(&mut live, 30_000, &mut events);
            assert_eq!(live.state_hash(), after[n], "step {step}, checkpoint {n}");
        }
    }
}

#[test]
fn clones_run_on_other_threads() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut source = (guest.boot)();
        quiet(&mut source, 50_000);
        let hashes: Vec<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let mut clone = source.clone();
                    scope.spawn(move || {
                        quiet(&mut clone, 200_000);
                        clone.state_hash()
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        quiet(&mut source, 200_000);
        assert_eq!(hashes, [source.state_hash(); 3]);
    }
}

#[test]
fn stop_addresses_may_come_and_go() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut plain = (guest.boot)();
        quiet(&mut plain, 100_000);
        let mut stopped = (guest.boot)();
        let handler = StopSet::after(u64::MAX).on(Kinds::INTERRUPT);
        let mut addresses = Vec::new();
        let mut round = 0u64;
        while stopped.cpus[0].executed < 100_000 {
            let left = 100_000 - stopped.cpus[0].executed;
            round += 1;
            let mut set = StopSet { instructions: Some(left.min(997)), ..handler.clone() };
            if !round.is_multiple_of(3) {
                set = addresses.iter().fold(set, |set, &at| set.at(at));
            }
            stopped.run(BSP, &set, &mut Events::off());
            addresses.push(VirtAddr(stopped.cpus[0].pc()));
            addresses.truncate(30);
        }
        assert_eq!(stopped.state_hash(), plain.state_hash());
    }
}

//! What came into a machine is the whole execution: played on a clone it leads to the same state, whatever
//! stops on the way.

mod guests;

use guests::{DATA, GUESTS};
use machine::board::TimerMode;
use machine::{Events, Input, Kinds, Machine, Playback, Played, Stop, StopSet, Tape, WordSet};
use std::sync::Arc;
use trace::{CpuId, PhysAddr};

const BSP: CpuId = CpuId(0);

/// Numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Drives a guest in all the ways there are: runs that end for many reasons, and inputs in between.
fn drive(machine: &mut Machine, draw: &mut Draw) {
    let words: WordSet =
        [0x100, 0x2000, 0x2ffc].map(|at| PhysAddr(u64::from(DATA) + at)).into_iter().collect();
    let words = Arc::new(words);
    let mut events = Events::off();
    machine.record();
    for _ in 0..400 {
        match draw.below(9) {
            0 => {
                machine.raise_timer(BSP);
            }
            1 => machine.serial_input(b"x"),
            2 => {
                machine.type_text("q");
            }
            3 => machine.set_timer_mode(TimerMode::FreeRunning),
            4 => machine.set_timer_mode(TimerMode::Controlled),
            5 => machine.set_timer_mode(TimerMode::Held),
            6 => {
                machine.expire(BSP);
            }
            7 => machine.write_phys(PhysAddr(u64::from(DATA) + 0x3f00), &[draw.below(256) as u8]),
            _ => {
                machine.sleep();
            }
        }
        let until = match draw.below(5) {
            0 => StopSet::after(draw.below(3_000)).on(Kinds::INTERRUPT),
            1 => StopSet::after(draw.below(3_000)).on(Kinds::INTERRUPT_RETURN),
            2 => StopSet::after(draw.below(3_000)).before(&words),
            3 => StopSet { ports: vec![0x20..=0x21], ..StopSet::after(draw.below(3_000)) },
            _ => StopSet::after(draw.below(1_000)),
        };
        machine.run(BSP, &until, &mut events);
    }
}

/// Plays a tape in pieces, each on a clone of where the last one stopped.
fn in_pieces(start: &Machine, tape: &Tape, piece: u64, on: Kinds) -> Machine {
    let mut machine = start.clone();
    let mut playback = Playback::new(tape);
    loop {
        match playback.go(&mut machine, &StopSet::after(piece).on(on), &mut Events::off()) {
            Played::End => return machine,
            Played::Stopped(..) => machine = machine.clone(),
            diverged => panic!("{diverged:?}"),
        }
    }
}

#[test]
fn a_tape_leads_to_the_same_state_whatever_stops_on_the_way() {
    for guest in GUESTS {
        println!("{}", guest.name);
        let mut live = (guest.boot)();
        live.run(BSP, &StopSet::after(5_000), &mut Events::off());
        let start = live.clone();
        drive(&mut live, &mut Draw(7));
        let tape = live.tape().expect("it was recorded");
        assert!(tape.inputs().iter().filter(|input| matches!(input, Input::Tick(_))).count() > 20);
        for (piece, on) in [
            (u64::MAX, Kinds::NONE),
            (997, Kinds::NONE),
            (31, Kinds::NONE),
            (u64::MAX, Kinds::INTERRUPT.and(Kinds::INTERRUPT_RETURN)),
        ] {
            let machine = in_pieces(&start, tape, piece, on);
            assert_eq!(machine.state_hash(), live.state_hash(), "in pieces of {piece}");
        }
    }
}

#[test]
fn any_instruction_of_a_tape_can_be_reached_and_left_again() {
    let mut live = (GUESTS[1].boot)();
    let start = live.clone();
    drive(&mut live, &mut Draw(8));
    let tape = live.tape().expect("it was recorded");
    let total = live.cpus[0].executed;
    for executed in (0..total).step_by(total as usize / 50) {
        let mut machine = start.clone();
        let mut playback = Playback::new(tape);
        let stopped = playback.go(&mut machine, &StopSet::after(executed), &mut Events::off());
        assert_eq!(stopped, Played::Stopped(BSP, Stop::Budget), "{executed}");
        assert_eq!(machine.cpus[0].executed, executed);
        assert_eq!(playback.go(&mut machine, &StopSet::default(), &mut Events::off()), Played::End);
        assert_eq!(machine.state_hash(), live.state_hash());
    }
}

#[test]
fn another_machine_is_noticed() {
    let mut live = (GUESTS[0].boot)();
    live.record();
    live.run(BSP, &StopSet::after(5_000), &mut Events::off());
    let mut other = Machine::flat32(4 << 20);
    // A HLT, and nothing to wake it.
    other.memory.load(PhysAddr(0), &[0xf4]);
    let played = Playback::new(live.tape().unwrap()).go(&mut other, &StopSet::default(), &mut Events::off());
    assert_eq!(played, Played::Diverged(BSP, Stop::Halt));
}

#[test]
fn tapes_can_be_read() {
    let mut machine = (GUESTS[0].boot)();
    machine.record();
    machine.run(BSP, &StopSet::after(100), &mut Events::off());
    machine.run(BSP, &StopSet::after(23), &mut Events::off());
    machine.set_timer_mode(TimerMode::Controlled);
    machine.raise_timer(BSP);
    machine.run(BSP, &StopSet::after(100).on(Kinds::INTERRUPT), &mut Events::off());
    machine.inject(BSP, 0x20, &mut Events::off());
    machine.serial_input(b"ab\n");
    machine.type_text("ls\n");
    machine.sleep();
    let lines: String = machine.tape().unwrap().inputs().iter().map(|input| format!("{input}\n")).collect();
    expect_test::expect![[r#"
        cpu0 runs to 123 instructions and 0 interrupts
        timers: Controlled
        tick of cpu0
        cpu0 runs to 123 instructions and 1 interrupts, before what is due
        interrupt 32 at cpu0
        serial line: ab\n
        keyboard: ls\n
        time passes
    "#]]
    .assert_eq(&lines);
}

//! Loops in a few bytes of 32-bit code, and whether each is one that only somebody else can end.

use super::*;

const CPU: CpuId = CpuId(0);
const CODE: u64 = 0x1000;
const FLAG: PhysAddr = PhysAddr(0x8000);
const SECOND: PhysAddr = PhysAddr(0x8024);

/// `cmp dword [FLAG], 0`
const LOOKS: [u8; 7] = [0x83, 0x3d, 0x00, 0x80, 0x00, 0x00, 0x00];

/// A machine in the loop that these instructions are the body of, after so many of them. `back` is the jump
/// to its beginning.
fn machine(body: &[u8], back: u8, instructions: u64) -> Machine {
    let mut machine = Machine::flat32(1 << 20);
    let length = u8::try_from(body.len() + 2).expect("a short loop");
    let code = [body, &[back, length.wrapping_neg()]].concat();
    machine.memory.write(PhysAddr(CODE), &code);
    machine.cpus[0].rip = CODE;
    machine.run(CPU, &StopSet::after(instructions), &mut Events::off());
    machine
}

const JE: u8 = 0x74;
const JMP: u8 = 0xeb;

/// What the loop waits for, if it waits.
fn waits_for(machine: &mut Machine) -> Option<Vec<PhysAddr>> {
    let spin = Spin::find(machine, CPU, Bounds::Yields)?;
    Some(spin.condition.iter().map(|value| value.at).collect())
}

#[test]
fn a_loop_that_changes_nothing_waits_for_what_it_reads() {
    assert_eq!(waits_for(&mut machine(&LOOKS, JE, 20)), Some(vec![FLAG]));
}

#[test]
fn a_loop_that_counts_does_not_wait() {
    // In a register: `inc ecx`.
    assert_eq!(waits_for(&mut machine(&[&[0x41], &LOOKS[..]].concat(), JE, 20)), None);
    // In memory: `inc dword [0x8004]`.
    let counts = [0xff, 0x05, 0x04, 0x80, 0x00, 0x00];
    assert_eq!(waits_for(&mut machine(&[&counts, &LOOKS[..]].concat(), JE, 20)), None);
}

#[test]
fn a_loop_that_asks_a_device_does_not_wait() {
    // `in al, 0x64`; `xor eax, eax`.
    let asks = [0xe4, 0x64, 0x31, 0xc0];
    assert_eq!(waits_for(&mut machine(&[&asks, &LOOKS[..]].concat(), JE, 20)), None);
}

#[test]
fn what_only_the_second_round_reads_counts() {
    // `mov eax, [0x8010]`; `mov ebx, [0x8020 + eax * 4]`; `mov dword [0x8010], 1`; `xor eax, eax`; `xor ebx,
    // ebx`: the first round reads 0x8020, and all that follow 0x8024.
    let body = [
        0xa1, 0x10, 0x80, 0x00, 0x00, 0x8b, 0x1c, 0x85, 0x20, 0x80, 0x00, 0x00, 0xc7, 0x05, 0x10, 0x80, 0x00,
        0x00, 0x01, 0x00, 0x00, 0x00, 0x31, 0xc0, 0x31, 0xdb,
    ];
    // After a round the registers are what they will be after each; only the memory is made as it was.
    let mut machine = machine(&body, JMP, 6);
    machine.memory.write(PhysAddr(0x8010), &[0; 4]);
    let reads = waits_for(&mut machine).expect("it waits");
    assert!(reads.contains(&SECOND), "{reads:?}");
}

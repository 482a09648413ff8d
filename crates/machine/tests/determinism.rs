//! One value, one run: the same machine does the same thing however it is run, cloned, restored or watched.
//!
//! The guest is assembled here: it turns paging on, takes timer interrupts, edits its page tables, changes its own
//! code, calls through pointers and copies with string instructions, for ever.

use iced_x86::code_asm::*;
use machine::x86::state::reg;
use machine::{Event, Events, Kinds, Machine, Stop, StopSet};
use trace::{CpuId, PhysAddr, VirtAddr};

const BSP: CpuId = CpuId(0);
const CODE: u64 = 0x1_0000;
const DIRECTORY: u32 = 0x8_0000;
const TABLE: u32 = 0x8_1000;
const IDT: u32 = 0x8_2000;
const STACK: u32 = 0x8_8000;
/// Two pages whose mappings are swapped, and the linear page they are swapped at.
const WINDOW: u32 = 0x9_0000;
const DATA: u32 = 0xa_0000;

fn gate(address: u32) -> u64 {
    u64::from(address & 0xffff) | 8 << 16 | 0x8e00 << 32 | u64::from(address >> 16) << 48
}

/// The guest, about to start.
fn guest() -> Machine {
    let mut a = CodeAssembler::new(32).unwrap();
    let build = |a: &mut CodeAssembler| -> Result<(), iced_x86::IcedError> {
        let mut again = a.create_label();
        let mut function = a.create_label();
        let mut patched = a.create_label();
        let mut handler = a.create_label();
        let mut inner = a.create_label();
        let mut skip = a.create_label();
        a.mov(eax, DIRECTORY)?;
        a.mov(cr3, eax)?;
        a.mov(eax, cr0)?;
        a.or(eax, 0x8001_0000u32 as i32)?;
        a.mov(cr0, eax)?;
        a.mov(eax, 0x2_0000)?;
        a.lidt(fword_ptr(eax))?;
        for (port, value) in [
            (0x20u32, 0x11u32),
            (0x21, 0x20),
            (0x21, 4),
            (0x21, 1),
            (0x21, 0xfe),
            (0x43, 0x34),
            (0x40, 200),
            (0x40, 1),
        ] {
            a.mov(al, value)?;
            a.out(port, al)?;
        }
        a.xor(ebp, ebp)?;
        a.sti()?;
        a.set_label(&mut again)?;
        a.mov(ecx, 50)?;
        a.mov(esi, DATA)?;
        a.set_label(&mut inner)?;
        a.imul_3(ebp, ebp, 1_664_525)?;
        a.add(ebp, 1_013_904_223)?;
        a.mov(eax, ebp)?;
        a.shr(eax, 20)?;
        a.add(dword_ptr(esi + eax), ecx)?;
        a.adc(byte_ptr(esi + eax + 7), 3)?;
        a.test(ebp, 0x1_0000)?;
        a.jz(skip)?;
        a.call(function)?;
        a.set_label(&mut skip)?;
        a.dec(ecx)?;
        a.jnz(inner)?;
        // Its own code: the immediate of an instruction it will run.
        a.inc(dword_ptr(CODE as u32 + 0x1000))?;
        a.mov(edx, dword_ptr(0x2_000c))?;
        a.mov(byte_ptr(edx + 1), cl)?;
        a.mov(eax, ebp)?;
        a.mov(byte_ptr(edx + 1), al)?;
        a.jmp(patched)?;
        a.set_label(&mut patched)?;
        a.mov(al, 0x55)?;
        a.mov(byte_ptr(esi + 0x3000), al)?;
        // Its page tables: the window shows the other page.
        a.xor(dword_ptr(TABLE + (WINDOW >> 12) * 4), 0x1000)?;
        a.invlpg(dword_ptr(WINDOW))?;
        a.add(dword_ptr(WINDOW), ebp)?;
        a.mov(esi, DATA + 0x123)?;
        a.mov(edi, DATA + 0x2fff)?;
        a.mov(ecx, 0x1234)?;
        a.rep().movsb()?;
        a.mov(edx, dword_ptr(0x2_0008))?;
        a.call(edx)?;
        a.jmp(again)?;
        a.set_label(&mut function)?;
        a.push(ebp)?;
        a.rol(dword_ptr(esp), 3)?;
        a.pop(edx)?;
        a.xor(dword_ptr(DATA + 0x2000), edx)?;
        a.ret()?;
        a.set_label(&mut handler)?;
        a.pushad()?;
        a.inc(dword_ptr(DATA + 0x2ffc))?;
        a.mov(al, 0x20)?;
        a.out(0x20, al)?;
        a.popad()?;
        a.iretd()
    };
    build(&mut a).unwrap();
    let result =
        a.assemble_options(CODE, iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS).unwrap();
    let bytes = &result.inner.code_buffer;
    let offsets = &result.inner.new_instruction_offsets;
    let at = |wanted: iced_x86::Code| {
        CODE as u32 + offsets[a.instructions().iter().position(|i| i.code() == wanted).unwrap()]
    };
    let handler = at(iced_x86::Code::Pushad);
    let function = at(iced_x86::Code::Push_r32);
    let patched = a.instructions().iter().position(|i| i.op_count() == 2 && i.immediate8() == 0x55).unwrap();
    let patched = CODE as u32 + offsets[patched];

    let mut m = Machine::flat32(4 << 20);
    m.memory.load(PhysAddr(CODE), bytes);
    m.memory.write_u32(PhysAddr(DIRECTORY.into()), TABLE | 3);
    for page in 0..1024u32 {
        m.memory.write_u32(PhysAddr((TABLE + 4 * page).into()), page << 12 | 3);
    }
    m.memory.write_u16(PhysAddr(0x2_0000), 0x7ff);
    m.memory.write_u32(PhysAddr(0x2_0002), IDT);
    m.memory.write_u32(PhysAddr(0x2_0008), function);
    m.memory.write_u32(PhysAddr(0x2_000c), patched);
    m.memory.write_u64(PhysAddr(u64::from(IDT) + 0x20 * 8), gate(handler));
    m.memory.write_u64(PhysAddr(0x2_0108), 0x00cf_9a00_0000_ffff);
    m.memory.write_u64(PhysAddr(0x2_0110), 0x00cf_9200_0000_ffff);
    let cpu = &mut m.cpus[0];
    cpu.gdtr.base = 0x2_0100;
    cpu.gdtr.limit = 0x17;
    cpu.rip = CODE;
    cpu.regs[reg::SP] = STACK.into();
    m
}

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
    let mut m = guest();
    quiet(&mut m, 1_000_000);
    let ticks = m.memory.read_u32(PhysAddr((DATA + 0x2ffc).into()));
    let (one, other) = (m.memory.read_u32(PhysAddr(WINDOW.into())), m.memory.read_u32(PhysAddr(0x9_1000)));
    assert!(m.memory.read_u32(PhysAddr(CODE + 0x1000)) > 1000, "rounds");
    assert_ne!((ticks, one, other), (0, 0, 0));
    assert!(one != 0 && other != 0, "both pages of the window are written");
}

#[test]
fn two_runs_hash_equal_all_the_way() {
    let (mut a, mut b) = (guest(), guest());
    for _ in 0..20 {
        quiet(&mut a, 100_000);
        quiet(&mut b, 100_000);
        assert_eq!(a.state_hash(), b.state_hash());
    }
}

#[test]
fn however_a_run_is_cut_it_comes_to_the_same() {
    let mut whole = guest();
    quiet(&mut whole, 60_000);
    let mut cut = guest();
    let mut state = 1u64;
    while cut.cpus[0].executed < 60_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let piece = (state >> 58).max(1).min(60_000 - cut.cpus[0].executed);
        quiet(&mut cut, piece);
    }
    assert_eq!(cut.state_hash(), whole.state_hash());
}

#[test]
fn both_tiers_do_the_same_and_log_the_same() {
    let (mut fast, mut slow) = (guest(), guest());
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

#[test]
fn watching_changes_nothing() {
    let (mut plain, mut watched) = (guest(), guest());
    let mut events = Events::all();
    for _ in 0..10 {
        quiet(&mut plain, 50_000);
        run(&mut watched, 50_000, &mut events);
    }
    assert_eq!(plain.state_hash(), watched.state_hash());
}

#[test]
fn physical_addresses_are_those_of_the_time_of_the_access() {
    let mut m = guest();
    let mut events = Events::off();
    events.accesses = true;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        run(&mut m, 2_000, &mut events);
        m.drain(&mut events, |event| {
            if let Event::Access(access) = event
                && access.address == VirtAddr(WINDOW.into())
            {
                seen.insert(access.physical);
            }
        });
    }
    assert_eq!(seen, [Some(PhysAddr(0x9_0000)), Some(PhysAddr(0x9_1000))].into());
}

#[test]
fn a_clone_runs_as_its_source_does() {
    let mut source = guest();
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

#[test]
fn what_the_source_writes_is_never_seen_by_the_clone() {
    let mut source = guest();
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

#[test]
fn going_back_equals_never_having_left() {
    let mut live = guest();
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

#[test]
fn clones_run_on_other_threads() {
    let mut source = guest();
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

#[test]
fn stop_addresses_may_come_and_go() {
    let mut plain = guest();
    quiet(&mut plain, 100_000);
    let mut stopped = guest();
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

//! What reduction leaves out in user-space mode makes no difference: partial-order reduction ends in the same
//! memories, deadlocks and crashes of the program as the search of every interleaving does.

mod ends;

use ends::{Ending, Ends, ends};
use explore::World;
use explore::strategies::{DepthFirst, Dpor};
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::{Image, ImageHash};
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use guests::Build;
use machine::Machine;
use std::path::Path;
use std::sync::Arc;
use trace::{Action, CpuId, PointSet, Step, StepEnd, VirtAddr};

const KERNEL: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");
const BOOT: CpuId = CpuId(0);
const HEAP: VirtAddr = VirtAddr(0x2000_0000);
const HEAP_BYTES: usize = 64 * 1024;

/// What is in a program's memory.
fn memory(machine: &Machine, image: &Image) -> String {
    let mut all = Vec::new();
    for segment in image.segments.iter().filter(|segment| segment.writable) {
        let mut bytes = vec![0; segment.size as usize];
        assert!(machine.read_virt(BOOT, segment.addr, &mut bytes), "the program's memory is still there");
        all.extend(bytes);
    }
    let mut heap = vec![0; HEAP_BYTES];
    if machine.read_virt(BOOT, HEAP, &mut heap) {
        all.extend(heap);
    }
    ImageHash::of(&all).to_string()
}

fn in_words(step: &Step) -> String {
    let last = step.events.last().map(|event| &event.action);
    match (&step.end, last) {
        (StepEnd::Finished, Some(Action::Console { line })) => line.clone(),
        (StepEnd::Stuck { waiting }, _) => {
            let waits: Vec<String> = waiting.iter().map(|waits| waits.thread.to_string()).collect();
            format!("stuck: {}", waits.join(" "))
        }
        (end, last) => format!("{end:?} {last:?}"),
    }
}

fn world(fault: &str, program: &str) -> World<Ending, Ends> {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("user_reduction").join(format!("{fault}_{program}"));
    let faults = if fault.is_empty() { Vec::new() } else { vec![fault.to_owned()] };
    let built = Build { faults, ..Build::default() }.image(&folder).expect("it builds");
    let file = std::fs::read(&built.kernel).expect("just built");
    let kernel = Description::parse("pebbles.toml", KERNEL).expect("it is bundled");
    let kernel =
        Kernel::resolve(&kernel, &Image::parse("kernel", &file).expect("an ELF file")).expect("it fits");
    let bytes = std::fs::read(folder.join("programs").join(program)).expect("just built");
    let image = Image::parse(program, &bytes).expect("an ELF file");
    let library = Description::parse("pebbles-threads.toml", LIBRARY).expect("it is bundled");
    let kernel = kernel.with_program(&library, &image, program).expect("it fits");
    let setup = Setup { test: program.to_owned(), programs: vec![image.clone()], ..Setup::default() };
    let started = lifecycle::start(&kernel, &file, &setup).expect("the program starts");
    let says = move |program: &Uniprocessor, end: &StepEnd| {
        (*end == StepEnd::Finished).then(|| memory(&program.machine, &image))
    };
    ends::world(started.subject, Arc::new(says), in_words)
}

#[test]
fn reduction_loses_no_end_of_a_program() {
    let calls = "create,fn:new_pages,fn:make_runnable,fn:deschedule,fn:yield,fn:vanish";
    for (fault, program, points, ends_min) in [
        ("", "call_order", calls, 8),
        ("", "deschedule_wake", "create,wake,fn:make_runnable,fn:deschedule,fn:vanish", 1),
        ("", "mutex_test", "lock,unlock,create,wake", 1),
        ("non_atomic_test_and_set", "mutex_test", "create,line:mutex.c:29,line:mutex_test.c:15", 2),
        ("", "benign_race", "create,line:benign_race.c:18,line:benign_race.c:19", 1),
        ("", "lockfree_queue", "create,fn:atomic_compare_swap_pointer,fn:atomic_exchange_pointer", 3),
        ("torn_fetch_add", "atomic_fetch_add", "create,line:atomic.c:32", 3),
        ("", "publish_test", "create,fn:yield,line:publish_test.c:27", 1),
        ("", "broadcast_test", "create,wake,fn:cond_wait", 1),
        ("lost_wakeup", "broadcast_test", "create,fn:cond_wait,fn:deschedule", 2),
        ("circular_lock_order", "lock_order_test", "create,lock,within:transfer", 2),
        ("", "spin_test", "create,fn:atomic_exchange,line:spin_test.c:19,line:spin_test.c:37", 1),
        ("spin_lock_kept", "spin_test", "create,fn:atomic_exchange,line:spin_test.c:19", 2),
        ("", "yield_test", "create,line:yield_test.c:17", 1),
        ("", "paradise_lost", "wake,fn:sem_wait", 1),
    ] {
        let world = world(fault, program);
        let points: PointSet = points.parse().expect("points");
        let (reduced, few) = ends(&world, &points, Dpor::default());
        let (all, many) = ends(&world, &points, DepthFirst);
        println!("{fault} {program}: {} ends, {few} interleavings of {many}", all.len());
        assert_eq!(reduced, all, "{fault} {program}");
        assert!(all.len() >= ends_min, "{fault} {program}: {all:?}");
        assert!(few <= many, "{fault} {program}: {few} of {many}");
    }
}

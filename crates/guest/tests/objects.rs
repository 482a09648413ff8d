//! What heap memory is said to hold, from what the code goes through.

mod support;

use expect_test::{Expect, expect};
use guest::elf::objects::Objects;
use support::image;
use trace::{
    Access, AccessKind, Action, Event, PhysAddr, Pointer, Sighting, Step, StepEnd, ThreadId, VirtAddr,
};

const KERNEL: &str = r#"
struct list { struct list *next, *prev; };
typedef struct { int owner; struct list waiters; } mutex_t;
struct thread { int tid; struct list link; mutex_t lock; struct thread *parent; };
struct task { struct list threads; int live; };
struct thread t; struct task p; mutex_t m;
void start(void) { for (;;); }
"#;

/// Each word is `alloc:ADDRESS:SIZE`, or an access `ADDRESS` with the pointers it goes through behind it:
/// `8004=struct_thread@8000`.
fn check(story: &str, expected: Expect) {
    let image = image("objects.c", KERNEL, &["-g", "-O1"]);
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mut step = Step {
        choice: ThreadId(1).into(),
        thread: ThreadId(1),
        accesses: Vec::new(),
        events: Vec::new(),
        instructions: 1,
        end: StepEnd::Finished,
        stack: Vec::new(),
        sightings: Vec::new(),
        remarks: Vec::new(),
    };
    for word in story.split_whitespace() {
        if let Some((addr, size)) = word.strip_prefix("alloc:").and_then(|rest| rest.split_once(':')) {
            let (addr, size) = (number(addr), number(size));
            let action = Action::Alloc { addr: VirtAddr(addr), phys: PhysAddr(addr), size };
            let accesses_before = step.accesses.len();
            step.events.push(Event { action, pc: VirtAddr(0x10_0000), accesses_before, stack: None });
            continue;
        }
        let mut parts = word.split('=');
        let addr = VirtAddr(number(parts.next().unwrap()));
        let pointers = parts.map(|pointer| {
            let (ty, to) = pointer.split_once('@').unwrap();
            Pointer { to: VirtAddr(number(to)), ty: ty.replace("struct_", "struct ") }
        });
        let access = step.accesses.len();
        let pointers = pointers.collect();
        step.sightings.push(Sighting {
            access,
            stack: Vec::new(),
            pointers,
            object: None,
            overwritten: false,
        });
        let (kind, pc) = (AccessKind::Read, VirtAddr(0x10_0000));
        step.accesses.push(Access { phys: PhysAddr(addr.0), addr, size: 4, kind, atomic: false, pc });
    }
    let mut steps = [step];
    Objects::learn(&mut steps, &|_| image.clone());
    let named = |seen: &Sighting| seen.object.clone().unwrap_or_else(|| "-".to_string()) + "\n";
    expected.assert_eq(&steps[0].sightings.iter().map(named).collect::<String>());
}

#[test]
fn the_pointer_tells_what_is_there() {
    check(
        "alloc:8000:1c 8000=struct_thread@8000 8004=struct_thread@8000 8018=struct_thread@8000",
        expect![[r#"
            tid of struct thread
            link.next of struct thread
            parent of struct thread
        "#]],
    );
    // A part is named by the whole, whoever spoke first; and so is what nobody speaks of.
    check(
        "alloc:8000:1c 8008=struct_list@8004 800c=mutex_t@800c 8000=struct_thread@8000 8014",
        expect![[r#"
            link.prev of struct thread
            lock.owner of struct thread
            tid of struct thread
            lock.waiters.prev of struct thread
        "#]],
    );
    // Nobody knows the whole.
    check(
        "8008=struct_list@8004 800c",
        expect![[r#"
            prev of struct list
            -
        "#]],
    );
}

#[test]
fn nothing_is_said_where_they_disagree() {
    check(
        "alloc:8000:1c 8000=struct_thread@8000=struct_task@8000 8004=struct_thread@8000",
        expect![[r#"
            -
            -
        "#]],
    );
    // There is a list in a thread, but not there.
    check(
        "8000=struct_thread@8000 800c=struct_list@800c",
        expect![[r#"
            -
            -
        "#]],
    );
    // Larger than the block; a type that is not known; a pointer to elsewhere.
    check(
        "alloc:8000:8 8000=struct_thread@8000 alloc:9000:8 9000=struct_nobody@9000 9004=struct_list@8000",
        expect![[r#"
            -
            -
            -
        "#]],
    );
}

#[test]
fn a_new_block_is_other_memory() {
    check(
        "alloc:8000:1c 8000=struct_thread@8000 alloc:8000:c 8000=struct_task@8000 8008",
        expect![[r#"
            tid of struct thread
            threads.next of struct task
            live of struct task
        "#]],
    );
}

//! The kinds of cases that a lock validator is expected to tell apart, each with the expected answer: the bug
//! classes that it reports, or nothing. The kinds are those of the locking self-test of Linux, written anew
//! as executions.

use crate::script::steps;
use crate::{Case, Config, Detectors};

/// (what it shows, execution, names of the findings)
const CASES: &[(&str, &str, &[&str])] = &[
    ("A A", "t1: lock a; request a", &["lock-recursion"]),
    ("A A by a try", "t1: lock a; trylock a", &[]),
    ("A A, a recursive lock", "t1: rec.lock a; rec.lock a; unlock a; unlock a", &[]),
    ("A A of two spinlocks of one class", "t1: init a @f0; init b @f0; spin.lock a; spin.lock b", &[]),
    (
        "A A of two locks of one class in both orders",
        "t1: init a @f0; init b @f0; lock a; lock b; unlock b; unlock a\n t2: lock b; lock a",
        &["lock-order"],
    ),
    (
        "A A of two locks of one class in both orders, one of them given to another object in between",
        "t1: init a @f0; init b @f0; lock a; lock b; unlock b; unlock a; renew b\n t2: lock b; lock a",
        &[],
    ),
    (
        "the same, a third given away",
        "t1: init a @f0; init b @f0; init c @f0; lock a; lock b; unlock b; unlock a; renew c\n t2: lock b; lock a",
        &["lock-order"],
    ),
    (
        "A A in both orders, one of them freed and made again in between",
        "t1: init a @f0; alloc A 16; init A+4 @f0; lock a; lock A+4; unlock A+4; unlock a; free A 16; alloc A 16; init A+4 @f0
         t2: lock A+4; lock a",
        &[],
    ),
    (
        "A A in both orders, one of them initialised again in between",
        "t1: init a @f0; init b @f0; lock a; lock b; unlock b; unlock a; init b @f0\n t2: lock b; lock a",
        &[],
    ),
    (
        "A B, then B is given to another object, B A",
        "t1: lock a; lock b; unlock b; unlock a; renew b\n t2: lock b; lock a",
        &[],
    ),
    (
        "A B, then B is given to another object, A B, B A",
        "t1: lock a; lock b; unlock b; unlock a; renew b; lock a; lock b; unlock b; unlock a\n t2: lock b; lock a",
        &["lock-order"],
    ),
    (
        "A A of other locks of one class in both orders, told apart by a subclass",
        "t1: init a @f0; init1 b @f0; lock a; lock b; unlock b; unlock a\n t2: init c @f0; init1 d @f0; lock d; lock c",
        &["lock-order"],
    ),
    (
        "the same without subclasses",
        "t1: init a @f0; init b @f0; lock a; lock b; unlock b; unlock a\n t2: init c @f0; init d @f0; lock d; lock c",
        &[],
    ),
    (
        "A B, A B, and then A once more: a sequence that is known hides nothing",
        "t1: init a @f0; init b @f1; lock a; lock b; unlock b; unlock a; lock a; lock b; request a",
        &["lock-recursion"],
    ),
    (
        "A B, A B, then B A",
        "t1: init a @f0; init b @f1; lock a; lock b; unlock b; unlock a; lock a; lock b; unlock b; unlock a; lock b; lock a",
        &["lock-order"],
    ),
    ("A B, B A", "t1: lock a; lock b; unlock b; unlock a\n t2: lock b; request a", &["lock-order"]),
    ("A B, B A by one thread", "t1: lock a; lock b; unlock b; unlock a; lock b; lock a", &["lock-order"]),
    ("A B, A B", "t1: lock a; lock b; unlock b; unlock a\n t2: lock a; lock b", &[]),
    (
        "A B, B C, C A",
        "t1: lock a; lock b; unlock b; unlock a; lock b; lock c; unlock c; unlock b\n t2: lock c; lock a",
        &["lock-order"],
    ),
    (
        "A B, C A, B C",
        "t1: lock a; lock b; unlock b; unlock a\n t2: lock c; lock a; unlock a; unlock c\n t3: lock b; lock c",
        &["lock-order"],
    ),
    (
        "A B, B C, C D, D A",
        "t1: lock a; lock b; unlock b; unlock a\n t2: lock b; lock c; unlock c; unlock b
         t3: lock c; lock d; unlock d; unlock c\n t4: lock d; lock a",
        &["lock-order"],
    ),
    (
        "A B, C D, B D, D A",
        "t1: lock a; lock b; unlock b; unlock a; lock c; lock d; unlock d; unlock c; lock b; lock d; unlock d; unlock b
         t2: lock d; lock a",
        &["lock-order"],
    ),
    (
        "A B, B C, A C",
        "t1: lock a; lock b; unlock b; unlock a\n t2: lock b; lock c; unlock c; unlock b\n t3: lock a; lock c",
        &[],
    ),
    ("A B, B A by a try", "t1: lock a; lock b; unlock b; unlock a\n t2: lock b; trylock a", &[]),
    (
        "what is behind a try that succeeded",
        "t1: lock a; lock b; unlock b; unlock a\n t2: trylock b; lock a",
        &["lock-order"],
    ),
    ("not nested", "t1: lock a; unlock a; lock b; unlock b\n t2: lock b; unlock b; lock a", &[]),
    ("hand over hand", "t1: lock a; lock b; unlock a; lock c; unlock b; unlock c\n t2: lock a; lock c", &[]),
    ("released twice", "t1: lock a; unlock a; unlock a", &["lock-released-not-held"]),
    ("released by another", "t1: lock a\n t2: unlock a", &["lock-released-by-another"]),
    ("a semaphore counted up by another", "t1: down s\n t2: up s", &[]),
    ("handed over", "t1: lock a; handoff a t2\n t2: unlock a", &[]),
    ("initialised while held", "t1: init a; lock a; init a", &["lock-initialised-while-held"]),
    ("initialised again when free", "t1: init a; lock a; unlock a; init a; lock a", &[]),
    ("used before it is initialised", "t1: init m; alloc A 16; lock A+4", &["lock-uninitialised"]),
    ("used, of a kind that nobody sees being initialised", "t1: init m; alloc A 16; unmade.lock A+4", &[]),
    ("initialised and used", "t1: init m; alloc A 16; init A+4; lock A+4", &[]),
    (
        "initialised, freed, allocated again and used",
        "t1: alloc A 16; init A+4; free A 16; alloc A 16; lock A+4; unlock A+4; init m; lock A+4",
        &["lock-uninitialised"],
    ),
    ("freed while held", "t1: alloc A 16; lock A+4; free A 16", &["lock-freed-while-held"]),
    ("freed after it was released", "t1: alloc A 16; lock A+4; unlock A+4; free A 16", &[]),
    ("freed beside it", "t1: alloc A 16; alloc B 16; lock A+4; free B 16", &[]),
    ("held in user mode", "t1: lock a; user", &["lock-held-in-user-mode"]),
    ("released before user mode", "t1: lock a; unlock a; user", &[]),
    // Readers. `read` waits for a writer that waits (a semaphore's read side), `rread` does not (a lock's
    // read side).
    ("R A, R A", "t1: read.lock a; read.lock a", &["lock-recursion"]),
    ("r A, r A", "t1: rread.lock a; rread.lock a", &[]),
    ("r A, W A", "t1: rread.lock a; lock a", &["lock-recursion"]),
    ("W A, r A", "t1: lock a; rread.lock a", &["lock-recursion"]),
    (
        "R A, R B and R B, R A",
        "t1: read.lock a; read.lock b; unlock b; unlock a\n t2: read.lock b; read.lock a",
        &["lock-order"],
    ),
    (
        "r A, r B and r B, r A",
        "t1: rread.lock a; rread.lock b; unlock b; unlock a\n t2: rread.lock b; rread.lock a",
        &[],
    ),
    (
        "W A, r B and r B, W A",
        "t1: lock a; rread.lock b; unlock b; unlock a\n t2: rread.lock b; lock a",
        &[],
    ),
    (
        "W A, r B and W B, W A",
        "t1: lock a; rread.lock b; unlock b; unlock a\n t2: lock b; lock a",
        &["lock-order"],
    ),
    (
        "r A, W B and W B, W A",
        "t1: rread.lock a; lock b; unlock b; unlock a\n t2: lock b; lock a",
        &["lock-order"],
    ),
    (
        "r A, W B and W B, r A",
        "t1: rread.lock a; lock b; unlock b; unlock a\n t2: lock b; rread.lock a",
        &[],
    ),
    (
        "W A, W B, then r B, W A, and W B, r A: a weak way and a strong one",
        "t1: lock a; rread.lock b; unlock b; lock b; unlock b; unlock a\n t2: rread.lock b; lock a",
        &["lock-order"],
    ),
    // Interrupts. What handlers do is `irq.` or `soft.`.
    (
        "safe, then unsafe",
        "t1: off; spin.lock a; unlock a; on; irq.spin.lock a; irq.unlock a\n t2: spin.lock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "unsafe, then safe",
        "t1: off; on; spin.lock a; unlock a\n t2: irq.spin.lock a; irq.unlock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "always safe",
        "t1: off; spin.lock a; unlock a; on; irq.spin.lock a; irq.unlock a; off; spin.lock a; unlock a; on",
        &[],
    ),
    (
        "a lock that a handler only tries",
        "t1: off; on; spin.lock a; unlock a; irq.spin.trylock a; irq.unlock a",
        &[],
    ),
    (
        "turned on while held",
        "t1: off; spin.lock a; on; unlock a; irq.spin.lock a; irq.unlock a",
        &["interrupt-unsafe-lock"],
    ),
    ("unsafe, of soft interrupts", "t1: off; on; spin.lock a; unlock a; soft.spin.lock a; soft.unlock a", &["interrupt-unsafe-lock"]),
    (
        "a reader in the handler, a reader outside",
        "t1: off; on; spin.rread.lock a; unlock a; irq.spin.rread.lock a; irq.unlock a",
        &[],
    ),
    (
        "a reader in the handler, a writer outside",
        "t1: off; on; spin.lock a; unlock a; irq.spin.rread.lock a; irq.unlock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "a writer in the handler, a reader outside",
        "t1: off; on; spin.rread.lock a; unlock a; irq.spin.lock a; irq.unlock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "safe before unsafe, the handler first",
        "t1: irq.spin.lock a; irq.unlock a; off; spin.lock a; spin.lock b; unlock b; unlock a; on
         t2: spin.lock b; unlock b",
        &["interrupt-lock-inversion"],
    ),
    (
        "safe before unsafe, the handler last",
        "t1: off; spin.lock a; spin.lock b; unlock b; unlock a; on\n t2: spin.lock b; unlock b
         t1: irq.spin.lock a; irq.unlock a",
        &["interrupt-lock-inversion"],
    ),
    (
        "safe before unsafe, the edge last",
        "t1: irq.spin.lock a; irq.unlock a; off; on; spin.lock b; unlock b; off; spin.lock a; spin.lock b",
        &["interrupt-lock-inversion"],
    ),
    (
        "safe before unsafe over a third",
        "t1: irq.spin.lock a; irq.unlock a; off; spin.lock a; spin.lock c; unlock c; unlock a; spin.lock c; spin.lock b; unlock b; unlock c; on
         t2: spin.lock b",
        &["interrupt-lock-inversion"],
    ),
    (
        "unsafe before safe",
        "t1: irq.spin.lock a; irq.unlock a; off; on; spin.lock b; off; spin.lock a; unlock a; on; unlock b",
        &[],
    ),
    (
        "no interrupts are ever turned off: nothing is said about them",
        "t1: spin.lock a; unlock a; irq.spin.lock a; irq.unlock a",
        &[],
    ),
    ("what a handler holds is apart", "t1: spin.lock a; irq.spin.lock b; irq.unlock b; unlock a\n t2: spin.lock b; spin.lock a", &[]),
    (
        "two orders inside handlers",
        "t1: irq.spin.lock a; irq.spin.lock b; irq.unlock b; irq.unlock a; irq.spin.lock b; irq.spin.lock a",
        &["lock-order"],
    ),
    // Deferred work of interrupts.
    (
        "a lock of deferred work, held where that can come",
        "t1: off; on; soft.spin.lock a; soft.unlock a; spin.lock a; unlock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "a lock of deferred work, held where that cannot come",
        "t1: off; on; soft.spin.lock a; soft.unlock a; soft-off; spin.lock a; unlock a; soft-on",
        &[],
    ),
    (
        "a lock of a handler, held where only deferred work cannot come",
        "t1: off; on; irq.spin.lock a; irq.unlock a; soft-off; spin.lock a; unlock a; soft-on",
        &["interrupt-unsafe-lock"],
    ),
    (
        "a lock of deferred work, still held when that can come again",
        "t1: off; on; soft.spin.lock a; soft.unlock a; soft-off; spin.lock a; soft-on",
        &["interrupt-unsafe-lock"],
    ),
    (
        "a lock that deferred work and a handler take",
        "t1: off; on; irq.spin.lock a; irq.unlock a; soft.spin.lock a; soft.unlock a",
        &["interrupt-unsafe-lock"],
    ),
    (
        "a lock that deferred work takes with interrupts off, and a handler",
        "t1: irq.spin.lock a; irq.unlock a; off; soft.spin.lock a; soft.unlock a; on",
        &[],
    ),
    // Locks that nobody saw being made.
    (
        "A B, C A of locks that were first used at the same places",
        "t1: found a 100; found b 200; lock a; lock b; unlock b; unlock a
         t2: found c 200; found d 100; lock c; lock d",
        &["lock-order"],
    ),
    (
        "A B, C A of elements at different offsets",
        "t1: found a 100 8; found b 100 16; lock a; lock b; unlock b; unlock a
         t2: found c 100 8; found d 100 16; lock c; lock d",
        &[],
    ),
    ("two elements of one array", "t1: found a 100 8; found b 100 8; lock a; lock b; unlock b; unlock a", &[]),
    // Read sides.
    ("a read side in a handler and with interrupts on", "t1: off; on; irq.spin.rread.trylock r; irq.unlock r; spin.rread.trylock r", &[]),
    ("a spinlock in a read side, a read side in a spinlock", "t1: spin.rread.trylock r; spin.lock a; unlock a; unlock r; spin.lock a; spin.rread.trylock r", &[]),
    ("a mutex in a read side", "t1: spin.rread.trylock r; request m", &["wait-context"]),
    ("sleeping in a read side", "t1: spin.rread.trylock r; block\n t2: write x", &["sleep-in-atomic"]),
    ("waiting in a read side until all are over", "t1: spin.rread.trylock r; request r", &["wait-context", "lock-recursion"]),
    // Waiting.
    ("a mutex inside a spinlock", "t1: spin.lock s; request m", &["wait-context"]),
    ("a spinlock inside a mutex", "t1: lock m; spin.lock s", &[]),
    ("a mutex tried inside a spinlock", "t1: spin.lock s; trylock m", &[]),
    ("a mutex in a handler", "t1: irq.lock m", &["wait-context"]),
    ("sleeping in a handler", "t1: irq.block", &["sleep-in-atomic"]),
    ("sleeping with a spinlock", "t1: spin.lock s; block\n t2: write x", &["sleep-in-atomic"]),
    ("sleeping with a mutex", "t1: lock m; block\n t2: write x", &[]),
    ("sleeping once the spinlock is released", "t1: spin.lock s; block; unlock s\n t2: write x", &[]),
    ("waiting for a spinlock with another", "t1: spin.lock s; spin.request q; block q\n t2: write x", &[]),
    ("woken before it could sleep", "t1: spin.lock s; block; wake t1\n t2: write x", &[]),
];

/// Each case with what is expected and what was found.
pub fn cases() -> Vec<Case> {
    let judge = |(what, script, expected): &(&'static str, &'static str, &[&'static str])| {
        let config = Config { lockdep: true, leak: false, ..Config::default() };
        let (mut detectors, mut findings) = (Detectors::new(&config), Vec::new());
        for step in steps(script) {
            // A clone must go on like the original.
            detectors = detectors.clone();
            detectors.observe(&step, &mut findings);
        }
        let found: Vec<_> = findings.iter().map(|finding| finding.kind.name()).collect();
        let said = |names: &[&str]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        Case { what, expected: said(expected), found: said(&found) }
    };
    CASES.iter().map(judge).collect()
}

#[cfg(test)]
#[test]
fn all_cases_are_as_expected() {
    let cases = cases();
    let wrong: Vec<_> = cases.iter().filter(|case| case.found != case.expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(cases.len() >= 60, "{} cases", cases.len());
}

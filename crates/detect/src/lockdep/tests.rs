//! What is reported, with both sides.

use crate::script::check_locks as check;
use expect_test::expect;

#[test]
fn a_cycle_is_reported_with_how_each_edge_came_about() {
    check(
        "t1: lock a; lock b; unlock b; unlock a
         t2: lock b; request a",
        expect![[r#"
            lock order: lock 0xa000 before lock 0xa100 before lock 0xa000
              = lock-order: lock 0xa000 < lock 0xa100
              t2 took them in this order at 2002, lock 0xa100
              t2 took it at 2001
              t1 took them in this order at 1002, lock 0xa000
              t1 took it at 1001
        "#]],
    );
    check(
        "t1: init a @f0; init b @f1; lock a; lock b; unlock b; unlock a; lock b; lock c; unlock c; unlock b
         t2: lock c; lock a",
        expect![[r#"
            lock order: lock 0xa000 before lock 0xa100 before lock 0xa200 before lock 0xa000
              = lock-order: locks initialised at 0x000000f0 < locks initialised at 0x000000f1 < lock 0xa200
              t2 took them in this order at 2002, lock 0xa200
              t2 took it at 2001
              t1 took them in this order at 1002, lock 0xa000
              t1 took it at 1001
              t1 took them in this order at 1006, lock 0xa100
              t1 took it at 1005
        "#]],
    );
}

#[test]
fn other_rules_have_both_sides_too() {
    check(
        "t1: spin.lock s; lock m",
        expect![[r#"
        lock 0xa100 puts its waiters to sleep and is asked for where nobody may sleep (lock 0xa000)
          = wait-context: lock 0xa100 < lock 0xa000
          t1 asked for it at 1002, lock 0xa000
          t1 took it at 1001
    "#]],
    );
    check(
        "t1: off; spin.lock a; unlock a; on; irq.spin.lock a; irq.unlock a\n t2: spin.lock a",
        expect![[r#"
            lock 0xa000 is taken by an interrupt handler and held where that interrupt can come
              = interrupt-unsafe-lock: lock 0xa000
              t1 was interrupted by a handler that took it at 1005, lock 0xa000
              t2 held it with interrupts on at 2001, lock 0xa000
        "#]],
    );
    check(
        "t1: lock a\n t2: unlock a",
        expect![[r#"
        lock 0xa000 is released by another thread than took it
          = lock-released-by-another: lock 0xa000
          t2 released it at 2001
          t1 took it at 1001
    "#]],
    );
    check(
        "t1: alloc A 16; lock A+4; free A 16",
        expect![[r#"
        lock 0x100004 lies in memory that is freed while it is held
          = lock-freed-while-held: locks at offset 4 of blocks from 0x00001001
          t1 freed it at 1003, lock 0x100004
          t1 took it at 1002
    "#]],
    );
}

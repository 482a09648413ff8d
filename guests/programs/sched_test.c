/* gettid, yield, deschedule, make_runnable, sleep, get_ticks, misbehave. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static struct spawn_stack stack;
static volatile int other_tid, steps;
static volatile int reject;

static void other(void)
{
    other_tid = gettid();
    steps = 1;
    deschedule((const int *)&reject);
    steps = 2;
    vanish();
}

int main(void)
{
    int me = gettid();
    assert(me > 0 && gettid() == me);
    assert(yield(me) == 0 && yield(-1) == 0);
    assert(yield(99999) < 0 && yield(-2) < 0);
    assert(make_runnable(me) < 0 && make_runnable(99999) < 0);

    int one = 1;
    assert(deschedule(&one) == 0);

    /* How far the other has come is the timer's choice, too: hence the loops. */
    misbehave(MISBEHAVE_CHILD_FIRST);
    int tid = SPAWN(stack, other);
    while (steps < 1)
        yield(tid);
    assert(other_tid == tid);
    misbehave(MISBEHAVE_WOKEN_FIRST);
    while (make_runnable(tid) < 0)
        yield(tid);
    misbehave(MISBEHAVE_NOT);
    while (steps < 2)
        yield(tid);
    while (yield(tid) == 0)
        ;
    assert(make_runnable(tid) < 0);

    unsigned before = get_ticks();
    assert(sleep(-1) < 0 && sleep(0) == 0);
    assert(sleep(3) == 0);
    assert(get_ticks() - before >= 3);
    printf("sched_test: ok\n");
    return 0;
}

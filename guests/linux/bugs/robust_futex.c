/*
 * A thread dies between giving a robust mutex free and waking the next waiter; the kernel must wake in its place. Meanwhile
 * another takes the mutex and gives it free again, all in user space.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rockfall_test.h"

static struct {
    struct robust_list link;
    atomic_uint word;
} mutex;

static struct robust_list_head robust;
static int dying, waiting;
static atomic_int waiter_is_there;

static long futex(int operation, unsigned value)
{
    return syscall(SYS_futex, &mutex.word, operation, value, NULL, NULL, 0);
}

static void die(void)
{
    robust.list.next = &robust.list;
    robust.futex_offset = offsetof(__typeof__(mutex), word) - offsetof(__typeof__(mutex), link);
    robust.list_op_pending = &mutex.link;
    syscall(SYS_set_robust_list, &robust, sizeof robust);
}

static void await_mutex(void)
{
    unsigned owned = 1 | FUTEX_WAITERS;
    waiter_is_there = 1;
    while (atomic_load(&mutex.word) == owned)
        futex(FUTEX_WAIT, owned);
}

static void setup(void)
{
    mutex.word = 1 | FUTEX_WAITERS;
    dying = rockfall_thread(1, die);
    waiting = rockfall_thread(0, await_mutex);
    rockfall_release(waiting);
    /* Until it waits: a wake-up that finds one to move elsewhere would change it, so it is only counted. */
    while (!waiter_is_there || syscall(SYS_futex, &mutex.word, FUTEX_CMP_REQUEUE, 0, 1, &mutex.word, 1 | FUTEX_WAITERS) < 1)
        usleep(1000);
    mutex.word = 0;
}

/* Takes the mutex and gives it free, as the C library does it while nobody else is there. */
static void first(void)
{
    unsigned expected = 0, mine = (unsigned)syscall(SYS_gettid);
    if (atomic_compare_exchange_strong(&mutex.word, &expected, mine)) {
        if (atomic_exchange(&mutex.word, 0) & FUTEX_WAITERS)
            futex(FUTEX_WAKE, 1);
    }
}

static void second(void)
{
    rockfall_release(dying);
    rockfall_await(dying);
}

/* Nobody is left waiting for a mutex that is free. */
static void check(void) { expect(futex(FUTEX_WAKE, 1) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

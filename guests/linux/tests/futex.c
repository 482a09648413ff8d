/* A mutex made of a futex, as user programs have them: a lost wake-up would leave a thread asleep for ever, and two owners
 * at once would lose a count. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rockfall_test.h"

#define ROUNDS 50

/* 0: free; 1: taken; 2: taken, and someone may be asleep. */
static atomic_int state;
static int counter;

static void futex_wait(int value)
{
    long result = syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, value, NULL);
    expect(result == 0 || errno == EAGAIN || errno == EINTR);
}

static void lock(void)
{
    int seen = 0;
    if (atomic_compare_exchange_strong(&state, &seen, 1))
        return;
    while (atomic_exchange(&state, 2) != 0)
        futex_wait(2);
}

static void unlock(void)
{
    if (atomic_exchange(&state, 0) == 2)
        expect(syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1) >= 0);
}

static void count(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        lock();
        int before = *(volatile int *)&counter;
        if (round % 8 == 0)
            usleep(1);
        counter = before + 1;
        unlock();
    }
}

static void check(void)
{
    expect(counter == 2 * ROUNDS);
    expect(state == 0);
}

const struct rockfall_test rockfall_test = {.threads = {count, count}, .check = check};

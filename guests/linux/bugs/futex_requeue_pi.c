/* A waiter for a priority-inheriting mutex gives up just when it is moved to that mutex. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rockfall_test.h"

static atomic_uint condition, mutex;

static void first(void)
{
    struct timespec when;
    clock_gettime(CLOCK_MONOTONIC, &when);
    long result = syscall(SYS_futex, &condition, FUTEX_WAIT_REQUEUE_PI, 0, &when, &mutex, 0);
    if (result == 0)
        expect(syscall(SYS_futex, &mutex, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    else
        expect(errno == ETIMEDOUT || errno == EAGAIN);
}

static void second(void)
{
    long result = syscall(SYS_futex, &condition, FUTEX_CMP_REQUEUE_PI, 1, 1, &mutex, 0);
    expect(result >= 0 || errno == EAGAIN);
}

static void setup(void) { first(); second(); }

/* The mutex can be taken by who asks for it. */
static void check(void)
{
    expect(syscall(SYS_futex, &mutex, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0) == 0);
    expect(syscall(SYS_futex, &mutex, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

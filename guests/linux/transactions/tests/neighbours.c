/* Each thread has a counter of its own, but all lie in one cache line: transactions conflict that have nothing in common. With lines of
   eight bytes (--line-size 8) they do not. */
#pragma GCC target("rtm")
#include <immintrin.h>

#include "rockfall_test.h"

#define THREADS 2

static struct {
    volatile long count, conflicts;
} threads[THREADS] __attribute__((aligned(64)));

static void count(int thread)
{
    unsigned status = _xbegin();
    if (status == _XBEGIN_STARTED) {
        threads[thread].count++;
        _xend();
        return;
    }
    if (status & _XABORT_CONFLICT)
        threads[thread].conflicts++;
}

static void first(void)
{
    count(0);
}

static void second(void)
{
    count(1);
}

static void check(void)
{
    for (int i = 0; i < THREADS; i++)
        expect(threads[i].conflicts == 0);
}

const struct rockfall_test rockfall_test = {.threads = {first, second}, .check = check};

/* Right: each thread counts in a transaction, by one instruction that reads and writes, and tries until one succeeds. */
#pragma GCC target("rtm")
#include <immintrin.h>

#include "rockfall_test.h"

static int counter;

static void count(void)
{
    while (_xbegin() != _XBEGIN_STARTED)
        continue;
    asm volatile("incl %0" : "+m"(counter));
    _xend();
}

static void check(void)
{
    expect(counter == 2);
}

const struct rockfall_test rockfall_test = {.threads = {count, count}, .check = check};

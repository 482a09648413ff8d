/* Wrong: there is no fallback. Nobody else does anything, but processors may abort a transaction whenever they like. */
#pragma GCC target("rtm")
#include <immintrin.h>

#include "rockfall_test.h"

static volatile int counter;

static void count(void)
{
    if (_xbegin() == _XBEGIN_STARTED) {
        counter++;
        _xend();
    }
}

static void nothing(void)
{
}

static void check(void)
{
    expect(counter == 1);
}

const struct rockfall_test rockfall_test = {.threads = {count, nothing}, .check = check};

/* Two threads count, one of them twice, under a lock that is elided: in a transaction, or with the lock where that aborts. Whether
   the transaction looks at the lock is left to the test: one that does not may commit between what the holder reads and writes. */
#include <stdatomic.h>

#pragma GCC target("rtm")
#include <immintrin.h>

#include "rockfall_test.h"

#define LOCK_IS_TAKEN 0xff

static atomic_int taken;
static volatile int counter;

/* In the transaction: nobody holds the lock, as far as this test looks. */
static int is_free(void);

static void count(void)
{
    if (_xbegin() == _XBEGIN_STARTED) {
        if (!is_free())
            _xabort(LOCK_IS_TAKEN);
        counter++;
        _xend();
        return;
    }
    while (atomic_exchange(&taken, 1))
        _mm_pause();
    int before = counter;
    counter = before + 1;
    taken = 0;
}

static void twice(void)
{
    count();
    count();
}

static void check(void)
{
    expect(counter == 3);
}

const struct rockfall_test rockfall_test = {.threads = {twice, count}, .check = check};

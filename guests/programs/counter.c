/* Threads count together, each in a transaction, or by one atomic instruction where the transaction aborts. */
#include "htm.h"

#include "../threadlib/atomic.h"

static volatile int counter;

static void work(int thread, int iteration)
{
    (void)thread, (void)iteration;
    if (_xbegin() == _XBEGIN_STARTED) {
        counter++;
        _xend();
    } else {
        atomic_fetch_add(&counter, 1);
    }
}

int main(void)
{
    htm_run();
    assert(counter == HTM_THREADS * HTM_ITERATIONS);
    return 0;
}

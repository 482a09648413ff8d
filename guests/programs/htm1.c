/* Threads count together, each in a transaction, or with a lock where the transaction aborts. The lock keeps fallbacks apart,
   but no transaction from a fallback: one that commits between its read and its write is lost. */
#include "htm.h"

#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;
static volatile int counter;

static void work(int thread, int iteration)
{
    (void)thread, (void)iteration;
    if (_xbegin() == _XBEGIN_STARTED) {
        counter++;
        _xend();
    } else {
        mutex_lock(&lock);
        int seen = counter;
        counter = seen + 1;
        mutex_unlock(&lock);
    }
}

int main(void)
{
    htm_run();
    assert(counter == HTM_THREADS * HTM_ITERATIONS);
    return 0;
}

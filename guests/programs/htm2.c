/* Threads count together, each in a transaction, or with a lock where the transaction aborts. The transaction looks whether
   the lock is taken, so that the two keep each other out. */
#include "htm_guard.h"

static volatile int counter;

static void work(int thread, int iteration)
{
    (void)thread, (void)iteration;
    guard_enter();
    int seen = counter;
    counter = seen + 1;
    guard_leave();
}

int main(void)
{
    htm_run();
    assert(counter == HTM_THREADS * HTM_ITERATIONS);
    return 0;
}

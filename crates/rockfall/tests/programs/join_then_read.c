/* A thread counts, and whoever joins it looks at the count. */
#include "runtime/stdio.h"
#include "threadlib/thr.h"

static int count;

static void *counts(void *arg)
{
    count++;
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(counts, 0);
    assert(thr_join(tid, 0) == 0);
    assert(count == 1);
    return 0;
}

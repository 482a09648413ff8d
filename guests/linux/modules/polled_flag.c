/*
 * A thread that has nothing to do says that it waits, looks once more, and polls until it is called; who brings work says so, and calls
 * only if it sees somebody wait. Without barriers each look may come before the other's word is seen: nobody is called.
 */
#include <linux/sched.h>

#include "rockfall_module.h"

static int waits, work, called;

static long await(unsigned long unused)
{
    WRITE_ONCE(waits, 1);
    mended_barrier();
    if (!READ_ONCE(work))
        while (!READ_ONCE(called))
            cpu_relax();
    return 0;
}

static long bring(unsigned long unused)
{
    WRITE_ONCE(work, 1);
    mended_barrier();
    if (READ_ONCE(waits))
        WRITE_ONCE(called, 1);
    return 0;
}

ROCKFALL_MODULE(polled_flag, nothing_to_begin, nothing_to_end, await, bring);

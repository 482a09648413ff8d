/*
 * Mutual exclusion by Peterson's algorithm: each says that it wants in, gives way, and waits while the other wants in too. Without a
 * barrier each may look before its own word is seen.
 */
#include <linux/sched.h>

#include "rockfall_module.h"

static int wants[2], turn, counter;

static long add(unsigned long me)
{
    int other = !me;

    WRITE_ONCE(wants[!other], 1);
    WRITE_ONCE(turn, other);
    mended_barrier();
    while (READ_ONCE(wants[other]) && READ_ONCE(turn) == other)
        cpu_relax();
    WRITE_ONCE(counter, READ_ONCE(counter) + 1);
    smp_store_release(&wants[!other], 0);
    return 0;
}

static long look(unsigned long unused)
{
    return READ_ONCE(counter);
}

ROCKFALL_MODULE(peterson, nothing_to_begin, nothing_to_end, add, look);

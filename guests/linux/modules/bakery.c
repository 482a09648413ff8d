/*
 * Mutual exclusion by Lamport's bakery: each draws a number above all others and waits for those with lower ones. Without a barrier
 * behind the drawing each may look before its number is seen.
 */
#include <linux/sched.h>

#include "rockfall_module.h"

static int draws[2], number[2], counter;

static long add(unsigned long me)
{
    int self = !!me, other = !me, theirs;

    WRITE_ONCE(draws[self], 1);
    mended_barrier();
    WRITE_ONCE(number[self], READ_ONCE(number[other]) + 1);
    WRITE_ONCE(draws[self], 0);
    mended_barrier();
    while (READ_ONCE(draws[other]))
        cpu_relax();
    for (;;) {
        theirs = READ_ONCE(number[other]);
        if (!theirs || theirs > number[self] || (theirs == number[self] && other > self))
            break;
        cpu_relax();
    }
    WRITE_ONCE(counter, READ_ONCE(counter) + 1);
    smp_store_release(&number[self], 0);
    return 0;
}

static long look(unsigned long unused)
{
    return READ_ONCE(counter);
}

ROCKFALL_MODULE(bakery, nothing_to_begin, nothing_to_end, add, look);

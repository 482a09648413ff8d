/*
 * A queue of work with two ends (Chase and Lev 2005): its owner takes at the bottom, others steal at the top. Without a barrier the owner may
 * look at the top before others see that it has lowered the bottom: one piece of work is done twice.
 */
#include <linux/atomic.h>

#include "rockfall_module.h"

enum { PIECES = 2, NONE = -1 };

static atomic_long_t top = ATOMIC_LONG_INIT(0);
static long bottom = PIECES;
static atomic_t done[PIECES];

/* Does the piece of work of this number; -EEXIST: it was done before. */
static long do_piece(long piece)
{
    return piece != NONE && atomic_inc_return(&done[piece]) > 1 ? -EEXIST : 0;
}

static long take(unsigned long unused)
{
    long here = READ_ONCE(bottom) - 1, first;

    WRITE_ONCE(bottom, here);
    mended_barrier();
    first = atomic_long_read(&top);
    if (first < here)
        return do_piece(here);
    /* The last one, if there is any: who moves the top has it. */
    WRITE_ONCE(bottom, here + 1);
    return do_piece(first == here && atomic_long_cmpxchg(&top, first, first + 1) == first ? here : NONE);
}

static long steal(void)
{
    long first = atomic_long_read(&top);

    smp_mb();
    if (first >= READ_ONCE(bottom))
        return 0;
    return do_piece(atomic_long_cmpxchg(&top, first, first + 1) == first ? first : NONE);
}

static long steal_twice(unsigned long unused)
{
    long error = steal();
    return error ? error : steal();
}

ROCKFALL_MODULE(deque, nothing_to_begin, nothing_to_end, take, steal_twice);

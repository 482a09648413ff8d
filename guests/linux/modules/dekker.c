/*
 * The first half of Dekker's algorithm: each puts up its flag and looks at the other's; who sees none has the thing. Without a barrier both
 * may look before either flag is seen.
 */
#include "rockfall_module.h"

static int flags[2];

/* 1: the thing is ours. */
static long claim(unsigned long me)
{
    WRITE_ONCE(flags[!!me], 1);
    mended_barrier();
    return !READ_ONCE(flags[!me]);
}

ROCKFALL_MODULE(dekker, nothing_to_begin, nothing_to_end, claim);

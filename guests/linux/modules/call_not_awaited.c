/*
 * A processor is interrupted to hear of a new version, and that all have heard is announced without waiting for the handler. The
 * interrupt may be on its way for longer than the announcement.
 */
#include <linux/smp.h>

#include "rockfall_module.h"

static int version = 1, announced, known;

static void hear(void *unused) { WRITE_ONCE(known, READ_ONCE(version)); }

/* Called on processor 0; processor 1 is interrupted. */
static long announce(unsigned long unused)
{
    int error;

    WRITE_ONCE(version, 2);
#ifdef MENDED
    error = smp_call_function_single(1, hear, NULL, 1);
#else
    error = smp_call_function_single(1, hear, NULL, 0);
#endif
    WRITE_ONCE(announced, 1);
    return error;
}

/* Called on processor 1. */
static long look(unsigned long unused) { return READ_ONCE(announced) && READ_ONCE(known) != 2 ? -EIO : 0; }

ROCKFALL_MODULE(call_not_awaited, nothing_to_begin, nothing_to_end, announce, look);

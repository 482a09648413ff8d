/* A counter that two processors add to: read, add and write are three steps, and nothing holds them together. */
#include <linux/spinlock.h>

#include "rockfall_module.h"

static DEFINE_SPINLOCK(lock);
static int counter;

static long add(unsigned long unused)
{
#ifdef MENDED
    spin_lock(&lock);
    counter++;
    spin_unlock(&lock);
#else
    int old = READ_ONCE(counter);
    WRITE_ONCE(counter, old + 1);
#endif
    return 0;
}

static long look(unsigned long unused)
{
    long seen;
    spin_lock(&lock);
    seen = counter;
    spin_unlock(&lock);
    return seen;
}

ROCKFALL_MODULE(lost_update, nothing_to_begin, nothing_to_end, add, look);

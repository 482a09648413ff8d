/* A pair that readers read without a lock: whether it changed meanwhile is for them to ask. */
#include <linux/seqlock.h>

#include "rockfall_module.h"

static DEFINE_SEQLOCK(lock);
static long first, second;

static long change(unsigned long unused)
{
    write_seqlock(&lock);
    WRITE_ONCE(first, first + 1);
    WRITE_ONCE(second, second + 1);
    write_sequnlock(&lock);
    return 0;
}

static long look(unsigned long unused)
{
    unsigned int sequence;
    long a, b;
#ifdef MENDED
    do {
        sequence = read_seqbegin(&lock);
        a = READ_ONCE(first);
        b = READ_ONCE(second);
    } while (read_seqretry(&lock, sequence));
#else
    sequence = read_seqbegin(&lock);
    a = READ_ONCE(first);
    b = READ_ONCE(second);
    (void)sequence;
#endif
    return a == b ? 0 : -EIO;
}

ROCKFALL_MODULE(seqlock_misuse, nothing_to_begin, nothing_to_end, change, look);

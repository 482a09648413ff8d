/* A pointer that is tested and then read again: what was tested is not what is used. */
#include <linux/spinlock.h>

#include "rockfall_module.h"

static struct filled content;
static struct filled *shared;

static long set(unsigned long unused)
{
    int i;

    for (i = 0; i < WORDS; i++)
        content.words[i] = ALIVE;
    WRITE_ONCE(shared, &content);
    return 0;
}

static long use(unsigned long unused)
{
#ifdef MENDED
    struct filled *object = READ_ONCE(shared);

    return object ? filled_look(object) : 0;
#else
    if (!shared)
        return 0;
    /* As a compiler may that was not told otherwise. */
    barrier();
    return filled_look(shared);
#endif
}

static long clear(unsigned long unused)
{
    WRITE_ONCE(shared, NULL);
    return 0;
}

ROCKFALL_MODULE(reread, nothing_to_begin, nothing_to_end, set, use, clear);

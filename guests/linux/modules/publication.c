/* An object that others can see before it is complete. */
#include "rockfall_module.h"

static struct filled content;
static struct filled *shared;

static long publish(unsigned long unused)
{
    int i;

#ifndef MENDED
    smp_store_release(&shared, &content);
#endif
    for (i = 0; i < WORDS; i++)
        WRITE_ONCE(content.words[i], ALIVE);
#ifdef MENDED
    smp_store_release(&shared, &content);
#endif
    return 0;
}

static long use(unsigned long unused)
{
    struct filled *object = smp_load_acquire(&shared);

    return object ? filled_look(object) : 0;
}

ROCKFALL_MODULE(publication, nothing_to_begin, nothing_to_end, publish, use);

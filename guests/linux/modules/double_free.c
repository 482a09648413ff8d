/* Two that give the same object back, each looking whether it is still there. */
#include <linux/atomic.h>

#include "rockfall_module.h"

#define TAKEN 64

static struct filled *shared;

static long fill(unsigned long unused)
{
    WRITE_ONCE(shared, filled_new());
    return shared ? 0 : -ENOMEM;
}

static long give_back(unsigned long unused)
{
#ifdef MENDED
    kfree(xchg(&shared, NULL));
#else
    struct filled *object = READ_ONCE(shared);

    if (object) {
        kfree(object);
        WRITE_ONCE(shared, NULL);
    }
#endif
    return 0;
}

/* Whether the allocator gives one object to two. */
static long look(unsigned long unused)
{
    static struct filled *taken[TAKEN];
    long twice = 0;
    int i, j;

    for (i = 0; i < TAKEN; i++)
        taken[i] = filled_new();
    for (i = 0; i < TAKEN; i++)
        for (j = 0; j < i; j++)
            twice += taken[i] && taken[i] == taken[j];
    for (i = 0; i < TAKEN && !twice; i++)
        kfree(taken[i]);
    return twice;
}

static void end(void) { kfree(shared); }

ROCKFALL_MODULE(double_free, nothing_to_begin, end, fill, give_back, look);

/* Something that is made when it is first needed, by each of two that need it first. */
#include <linux/mutex.h>

#include "rockfall_module.h"

static DEFINE_MUTEX(lock);
static struct filled *shared;
static long made;

static long need(unsigned long unused)
{
#ifdef MENDED
    mutex_lock(&lock);
    if (!shared) {
        shared = filled_new();
        made++;
    }
    mutex_unlock(&lock);
#else
    if (!READ_ONCE(shared)) {
        struct filled *object = filled_new();

        mutex_lock(&lock);
        shared = object;
        made++;
        mutex_unlock(&lock);
    }
#endif
    return shared ? 0 : -ENOMEM;
}

static long look(unsigned long unused) { return made; }

static void end(void) { kfree(shared); }

ROCKFALL_MODULE(made_twice, nothing_to_begin, end, need, look);

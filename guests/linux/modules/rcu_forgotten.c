/* A reader without locks, and a writer that gives the old version back without waiting for readers. */
#include <linux/rcupdate.h>

#include "rockfall_module.h"

struct version {
    struct filled filled;
    struct rcu_head rcu;
};

static struct version __rcu *current_version;

static struct version *version_new(void)
{
    struct version *version = kmalloc(sizeof *version, GFP_KERNEL);
    int i;

    for (i = 0; version && i < WORDS; i++)
        version->filled.words[i] = ALIVE;
    return version;
}

static int begin(void)
{
    struct version *version = version_new();

    RCU_INIT_POINTER(current_version, version);
    return version ? 0 : -ENOMEM;
}

static long read(unsigned long unused)
{
    struct version *version;
    long seen;

    rcu_read_lock();
    version = rcu_dereference(current_version);
    seen = filled_look(&version->filled);
    rcu_read_unlock();
    return seen;
}

static long replace(unsigned long unused)
{
    struct version *version = version_new(), *old;

    if (!version)
        return -ENOMEM;
    old = rcu_dereference_protected(current_version, true);
    rcu_assign_pointer(current_version, version);
#ifdef MENDED
    kfree_rcu(old, rcu);
#else
    kfree(old);
#endif
    return 0;
}

static void end(void) { kfree(rcu_dereference_protected(current_version, true)); }

ROCKFALL_MODULE(rcu_forgotten, begin, end, read, replace);

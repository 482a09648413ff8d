/* An object that is looked up without what keeps it: its last owner has counted down to zero when another counts up again. */
#include <linux/refcount.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

struct counted {
    refcount_t owners;
    struct filled *content;
};

static DEFINE_SPINLOCK(lock);
static struct counted *shared;

static long fill(unsigned long unused)
{
    struct counted *object = kmalloc(sizeof *object, GFP_KERNEL);

    if (!object)
        return -ENOMEM;
    object->content = filled_new();
    refcount_set(&object->owners, 1);
    shared = object;
    return object->content ? 0 : -ENOMEM;
}

static struct counted *get(void)
{
    struct counted *object;
#ifdef MENDED
    spin_lock(&lock);
#endif
    object = READ_ONCE(shared);
    if (object)
        refcount_inc(&object->owners);
#ifdef MENDED
    spin_unlock(&lock);
#endif
    return object;
}

static void put(struct counted *object)
{
    if (!refcount_dec_and_lock(&object->owners, &lock))
        return;
    if (shared == object)
        shared = NULL;
    spin_unlock(&lock);
    kfree(object->content);
    kfree(object);
}

static long use(unsigned long unused)
{
    struct counted *object = get();
    long seen;

    if (!object)
        return 0;
    seen = filled_look(object->content);
    put(object);
    return seen;
}

static long give_up(unsigned long unused)
{
    struct counted *object = READ_ONCE(shared);

    if (object)
        put(object);
    return 0;
}

static void end(void) { give_up(0); }

ROCKFALL_MODULE(refcount_up, nothing_to_begin, end, fill, use, give_up);

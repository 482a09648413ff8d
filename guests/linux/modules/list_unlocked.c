/* A list that two add to at once: one entry is lost, or the list's own checks complain. */
#include <linux/list.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

static LIST_HEAD(entries);
static DEFINE_SPINLOCK(lock);
static struct list_head mine[2];

static void add(struct list_head *entry)
{
#ifdef MENDED
    spin_lock(&lock);
    list_add(entry, &entries);
    spin_unlock(&lock);
#else
    list_add(entry, &entries);
#endif
}

static long add_first(unsigned long unused)
{
    add(&mine[0]);
    return 0;
}

static long add_second(unsigned long unused)
{
    add(&mine[1]);
    return 0;
}

static long look(unsigned long unused)
{
    struct list_head *entry;
    long count = 0;

    spin_lock(&lock);
    list_for_each(entry, &entries)
        count++;
    spin_unlock(&lock);
    return count;
}

ROCKFALL_MODULE(list_unlocked, nothing_to_begin, nothing_to_end, add_first, add_second, look);

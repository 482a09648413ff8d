/* A walk over a list that lets go of the lock for a moment and goes on with the neighbour that it remembered. */
#include <linux/list.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

struct entry {
    struct list_head link;
    struct filled filled;
};

static LIST_HEAD(entries);
static DEFINE_SPINLOCK(lock);

static long fill(unsigned long unused)
{
    int i, j;

    for (i = 0; i < 3; i++) {
        struct entry *entry = kmalloc(sizeof *entry, GFP_KERNEL);

        if (!entry)
            return -ENOMEM;
        for (j = 0; j < WORDS; j++)
            entry->filled.words[j] = ALIVE;
        list_add_tail(&entry->link, &entries);
    }
    return 0;
}

static long walk(unsigned long unused)
{
    struct entry *entry, *next;
    long seen = 0;

    spin_lock(&lock);
    list_for_each_entry_safe(entry, next, &entries, link) {
        seen |= filled_look(&entry->filled);
        if (seen)
            break;
#ifndef MENDED
        spin_unlock(&lock);
        /* Here a driver would call somebody back. */
        spin_lock(&lock);
#endif
    }
    spin_unlock(&lock);
    return seen;
}

/* Takes the second entry out and gives it back. */
static long remove_second(unsigned long unused)
{
    struct entry *entry = NULL;

    spin_lock(&lock);
    if (!list_empty(&entries) && !list_is_singular(&entries)) {
        entry = list_first_entry(entries.next, struct entry, link);
        list_del(&entry->link);
    }
    spin_unlock(&lock);
    kfree(entry);
    return 0;
}

static void end(void)
{
    struct entry *entry, *next;

    list_for_each_entry_safe(entry, next, &entries, link)
        kfree(entry);
}

ROCKFALL_MODULE(lock_dropped, nothing_to_begin, end, fill, walk, remove_second);

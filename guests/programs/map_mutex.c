/* Threads insert into a map that begins with one bucket and grows, with a mutex and no transactions. */
#define MAP_BUCKETS 1
#include "htm_map.h"

#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;

static void insert_safely(struct entry *entry)
{
    mutex_lock(&lock);
    insert(entry);
    mutex_unlock(&lock);
}

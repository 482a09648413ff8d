/* Threads insert into a map that begins with one bucket and grows, each in a transaction, or with a lock where the transaction
   aborts, which transactions look at. */
#define MAP_BUCKETS 1
#include "htm_map.h"
#include "htm_guard.h"

static void insert_safely(struct entry *entry)
{
    guard_enter();
    insert(entry);
    guard_leave();
}

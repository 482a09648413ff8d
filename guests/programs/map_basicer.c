/* Threads insert into a map that begins so large that it never grows, each in a transaction, or with a lock where the transaction
   aborts, which transactions look at. */
#define MAP_BUCKETS 64
#include "htm_map.h"
#include "htm_guard.h"

static void insert_safely(struct entry *entry)
{
    guard_enter();
    insert(entry);
    guard_leave();
}

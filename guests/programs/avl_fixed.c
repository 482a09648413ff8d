/* Threads insert into a balanced tree, each in a transaction, or with a lock where the transaction aborts, which transactions
   look at. */
#include "htm_avl.h"
#include "htm_guard.h"

static void insert_safely(struct node *node)
{
    guard_enter();
    root = insert(root, node);
    guard_leave();
}

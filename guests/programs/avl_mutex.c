/* Threads insert into a balanced tree, with a mutex and no transactions: what is left to test once the lock is trusted. */
#include "htm_avl.h"

#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;

static void insert_safely(struct node *node)
{
    mutex_lock(&lock);
    root = insert(root, node);
    mutex_unlock(&lock);
}

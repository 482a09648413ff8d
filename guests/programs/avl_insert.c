/* Threads insert into a balanced tree, each in a transaction, or with a lock where the transaction aborts. The transaction does
   not look whether the lock is taken: it commits in the middle of another thread's insertion. */
#ifndef HTM_ITERATIONS
#define HTM_ITERATIONS 2
#endif
#include "htm_avl.h"

#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;

static void insert_safely(struct node *node)
{
    if (_xbegin() == _XBEGIN_STARTED) {
        root = insert(root, node);
        _xend();
    } else {
        mutex_lock(&lock);
        root = insert(root, node);
        mutex_unlock(&lock);
    }
}

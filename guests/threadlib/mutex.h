/* Mutual exclusion between the threads of a task. Those who wait do so blocked, and in the order they came. */
#ifndef MUTEX_H
#define MUTEX_H

#include "waiter.h"

struct mutex {
    void *volatile state; /* NULL: free; MUTEX_LOCKED: held; otherwise held, and the latest of those who wait */
};

#define MUTEX_INIT {0}

void mutex_init(struct mutex *m);
void mutex_destroy(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

#endif

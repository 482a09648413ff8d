/* Condition variables. A wait may end only because of a signal or broadcast that came after it began. */
#ifndef COND_H
#define COND_H

#include "mutex.h"

struct cond {
    struct mutex lock; /* guards the queue */
    struct waiter *first, *last;
};

#define COND_INIT {MUTEX_INIT, 0, 0}

void cond_init(struct cond *c);
void cond_destroy(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

#endif

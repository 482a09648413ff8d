#include "cond.h"

#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

void cond_init(struct cond *c)
{
    mutex_init(&c->lock);
    c->first = c->last = NULL;
}

void cond_destroy(struct cond *c)
{
    assert(c->first == NULL);
    mutex_destroy(&c->lock);
}

static void enqueue(struct cond *c, struct waiter *w)
{
    mutex_lock(&c->lock);
    if (c->first)
        c->last->next = w;
    else
        c->first = w;
    c->last = w;
    mutex_unlock(&c->lock);
}

static void wait_for_signal(struct waiter *w)
{
#if defined(FAULT_STOLEN_WAKEUP)
    if (!w->woken)
        deschedule((const int *)&w->woken);
#elif defined(FAULT_LOST_WAKEUP)
    static const int never = 0;
    while (!w->woken)
        deschedule(&never);
#else
    waiter_wait(w);
#endif
}

/* In the queue first, and only then out of the mutex: from that moment a signal finds the thread. */
void cond_wait(struct cond *c, struct mutex *m)
{
    struct waiter self;
    waiter_init(&self);
#ifdef FAULT_SIGNAL_BEFORE_WAIT
    mutex_unlock(m);
    enqueue(c, &self);
#else
    enqueue(c, &self);
    mutex_unlock(m);
#endif
    wait_for_signal(&self);
    mutex_lock(m);
}

void cond_signal(struct cond *c)
{
    mutex_lock(&c->lock);
    struct waiter *w = c->first;
    if (w)
        c->first = w->next;
    mutex_unlock(&c->lock);
    if (w)
        waiter_wake(w);
}

void cond_broadcast(struct cond *c)
{
    mutex_lock(&c->lock);
    struct waiter *w = c->first;
    c->first = NULL;
    mutex_unlock(&c->lock);
    while (w) {
#ifdef FAULT_BROADCAST_LATE_NEXT
        waiter_wake(w);
        w = w->next;
#else
        struct waiter *next = w->next; /* a woken waiter's stack is its own again */
        waiter_wake(w);
        w = next;
#endif
    }
}

/*
 * A mutex is one word. A thread that finds it taken pushes itself onto a list that begins in that word; the owner, when it
 * unlocks, hands the mutex to the thread at the list's far end, which came first. Only the owner takes threads off and others
 * only push, so the list cannot change behind the owner's back except at its head, where compare-and-swap notices.
 */
#include "mutex.h"

#include <stddef.h>

#include "../runtime/stdio.h"
#include "atomic.h"

#define MUTEX_LOCKED ((void *)1)

void mutex_init(struct mutex *m)
{
    m->state = NULL;
}

void mutex_destroy(struct mutex *m)
{
    assert(m->state == NULL);
}

void mutex_lock(struct mutex *m)
{
#ifdef FAULT_NON_ATOMIC_TEST_AND_SET
    if (m->state == NULL) {
        m->state = MUTEX_LOCKED;
        return;
    }
#else
    if (atomic_compare_swap_pointer(&m->state, NULL, MUTEX_LOCKED) == NULL)
        return;
#endif
    struct waiter self;
    waiter_init(&self);
    for (;;) {
        void *old = m->state;
        if (old == NULL) {
            if (atomic_compare_swap_pointer(&m->state, NULL, MUTEX_LOCKED) == NULL)
                return;
        } else {
            self.next = old;
            if (atomic_compare_swap_pointer(&m->state, old, &self) == old)
                break;
        }
    }
    waiter_wait(&self); /* mutex_unlock hands it over */
}

void mutex_unlock(struct mutex *m)
{
    void *top = atomic_compare_swap_pointer(&m->state, MUTEX_LOCKED, NULL);
    if (top == MUTEX_LOCKED)
        return;
    assert(top != NULL);
    struct waiter *first = top;
    if (first->next != MUTEX_LOCKED || atomic_compare_swap_pointer(&m->state, first, MUTEX_LOCKED) != first) {
        /* At least two wait. */
        struct waiter *second = m->state;
        while (second->next->next != MUTEX_LOCKED)
            second = second->next;
        first = second->next;
        second->next = MUTEX_LOCKED;
    }
    waiter_wake(first);
}

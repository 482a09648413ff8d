/* Threads exchange elements of an array, each in a transaction, or with a mutex for each of the two elements where the
   transaction aborts. How the fallback orders the two mutexes is left to the program. */
#ifndef HTM_SWAP_H
#define HTM_SWAP_H

#include "htm.h"

#include "../threadlib/mutex.h"

#define ELEMENTS HTM_THREADS

static struct element {
    struct mutex lock;
    volatile int taken;
    volatile int value;
} elements[ELEMENTS];

/* Which of the two the fallback locks first. */
static int swap_locks_first(int a, int b);

static void take(struct element *element)
{
    mutex_lock(&element->lock);
    element->taken = 1;
}

static void give(struct element *element)
{
    element->taken = 0;
    mutex_unlock(&element->lock);
}

static inline __attribute__((always_inline)) void exchange(struct element *a, struct element *b)
{
    int value = a->value;
    a->value = b->value;
    b->value = value;
}

static void swap(int a, int b)
{
    if (_xbegin() == _XBEGIN_STARTED) {
        if (elements[a].taken || elements[b].taken)
            _xabort(LOCK_IS_TAKEN);
        exchange(&elements[a], &elements[b]);
        _xend();
        return;
    }
    int first = swap_locks_first(a, b);
    take(&elements[first]);
    take(&elements[a + b - first]);
    exchange(&elements[a], &elements[b]);
    give(&elements[a + b - first]);
    give(&elements[first]);
}

static void work(int thread, int iteration)
{
    int a = (thread + iteration) % ELEMENTS;
    swap(a, (a + 1) % ELEMENTS);
}

int main(void)
{
    for (int i = 0; i < ELEMENTS; i++) {
        mutex_init(&elements[i].lock);
        elements[i].value = 1 << i;
    }
    htm_run();
    int all = 0;
    for (int i = 0; i < ELEMENTS; i++)
        all |= elements[i].value;
    assert(all == (1 << ELEMENTS) - 1);
    return 0;
}

#endif

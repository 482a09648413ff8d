/* A critical section that is a transaction, or holds a mutex where the transaction aborts. Whoever holds it says so, and
   transactions look: so both paths keep each other out. */
#ifndef HTM_GUARD_H
#define HTM_GUARD_H

#include "htm.h"

#include "../threadlib/mutex.h"

static struct mutex guard_lock = MUTEX_INIT;
static volatile int guard_taken;

static inline __attribute__((always_inline)) void guard_enter(void)
{
    if (_xbegin() == _XBEGIN_STARTED) {
        if (guard_taken)
            _xabort(LOCK_IS_TAKEN);
    } else {
        mutex_lock(&guard_lock);
        guard_taken = 1;
    }
}

static inline __attribute__((always_inline)) void guard_leave(void)
{
    if (_xtest()) {
        _xend();
    } else {
        guard_taken = 0;
        mutex_unlock(&guard_lock);
    }
}

#endif

/* A lock that is a transaction while nobody needs more: whoever takes it begins a transaction and looks whether it is free. If the
   transaction aborts for no reason of the program's, it is tried again; if somebody has the lock, after that one gave it back;
   otherwise the lock is taken. What the lock itself is, is left to the header that is included after this one. */
#ifndef HTM_LOCK_H
#define HTM_LOCK_H

#include "htm.h"

static int lock_is_free(void);
static void lock_take(void);
static void lock_give(void);
/* Returns when it may be free. */
static void lock_await(void);

static void elided_acquire(void)
{
    for (;;) {
        unsigned status = _xbegin();
        if (status == _XBEGIN_STARTED) {
            if (lock_is_free())
                return;
            _xabort(LOCK_IS_TAKEN);
        }
        if (status & _XABORT_RETRY)
            continue;
        if (!(status & _XABORT_EXPLICIT) || _XABORT_CODE(status) != LOCK_IS_TAKEN)
            break;
        lock_await();
    }
    lock_take();
}

static void elided_release(void)
{
    if (lock_is_free())
        _xend();
    else
        lock_give();
}

#endif

/* Two threads count to two together, each in a transaction, or with a lock where the transaction fails. A transaction must
   see that the lock is taken, or it commits in the middle of the other thread's critical section. */
#include <stddef.h>

#pragma GCC target("rtm")
#include <x86gprintrin.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

#define LOCK_IS_TAKEN 0xff

static struct mutex lock = MUTEX_INIT;
static volatile int taken;
static volatile int counter;

static void count_with_lock(void)
{
    mutex_lock(&lock);
    taken = 1;
    int seen = counter;
    counter = seen + 1;
    taken = 0;
    mutex_unlock(&lock);
}

static void *count(void *arg)
{
    if (_xbegin() == _XBEGIN_STARTED) {
#ifndef FAULT_HTM_LOCK_UNSEEN
        if (taken)
            _xabort(LOCK_IS_TAKEN);
#endif
        counter++;
        _xend();
    } else {
        count_with_lock();
    }
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(count, NULL);
    count(NULL);
    assert(thr_join(tid, NULL) == 0);
    assert(counter == 2);
    mutex_destroy(&lock);
    return 0;
}

#include "rwlock.h"

#include "../runtime/stdio.h"

enum { WRITER = -1 };

void rwlock_init(struct rwlock *rw)
{
    mutex_init(&rw->lock);
    cond_init(&rw->readers_may);
    cond_init(&rw->writers_may);
    rw->readers = rw->writers_waiting = 0;
}

void rwlock_destroy(struct rwlock *rw)
{
    assert(rw->readers == 0 && rw->writers_waiting == 0);
    cond_destroy(&rw->readers_may);
    cond_destroy(&rw->writers_may);
    mutex_destroy(&rw->lock);
}

void rwlock_lock(struct rwlock *rw, enum rwlock_mode mode)
{
    mutex_lock(&rw->lock);
    if (mode == RWLOCK_WRITE) {
        rw->writers_waiting++;
        while (rw->readers != 0)
            cond_wait(&rw->writers_may, &rw->lock);
        rw->writers_waiting--;
        rw->readers = WRITER;
    } else {
        while (rw->readers == WRITER || rw->writers_waiting > 0)
            cond_wait(&rw->readers_may, &rw->lock);
        rw->readers++;
    }
    mutex_unlock(&rw->lock);
}

void rwlock_unlock(struct rwlock *rw)
{
    mutex_lock(&rw->lock);
    assert(rw->readers != 0);
    if (rw->readers == WRITER)
        rw->readers = 0;
    else
        rw->readers--;
    if (rw->writers_waiting > 0) {
        if (rw->readers == 0)
            cond_signal(&rw->writers_may);
    } else {
        cond_broadcast(&rw->readers_may);
    }
    mutex_unlock(&rw->lock);
}

#ifdef FAULT_DOWNGRADE_GAP

void rwlock_downgrade(struct rwlock *rw)
{
    rwlock_unlock(rw);
    rwlock_lock(rw, RWLOCK_READ);
}

#else

void rwlock_downgrade(struct rwlock *rw)
{
    mutex_lock(&rw->lock);
    assert(rw->readers == WRITER);
    rw->readers = 1;
#ifndef FAULT_DOWNGRADE_FORGETS_READERS
    cond_broadcast(&rw->readers_may);
#endif
    mutex_unlock(&rw->lock);
}

#endif

/* Reader/writer locks. Readers that come while a writer waits stand behind it, so writers do not starve. */
#ifndef RWLOCK_H
#define RWLOCK_H

#include "cond.h"

enum rwlock_mode { RWLOCK_READ, RWLOCK_WRITE };

struct rwlock {
    struct mutex lock;
    struct cond readers_may, writers_may;
    int readers; /* inside; -1: a writer is */
    int writers_waiting;
};

void rwlock_init(struct rwlock *rw);
void rwlock_destroy(struct rwlock *rw);
void rwlock_lock(struct rwlock *rw, enum rwlock_mode mode);
void rwlock_unlock(struct rwlock *rw);
void rwlock_downgrade(struct rwlock *rw); /* from writer to reader, letting no other writer in between */

#endif

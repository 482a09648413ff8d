/*
 * Mutexes and condition variables for threads in the kernel.
 *
 * mutex_lock may block, so it must not be called with preemption disabled. Unlocking and signalling never block and may be.
 * In one design (see sync.c) a thread that finds a mutex taken stays runnable and yields until it is free.
 */
#ifndef SYNC_H
#define SYNC_H

#include "thread.h"

struct mutex {
    struct thread *owner;
    struct waitq waiters;
};

struct cond {
    struct waitq waiters;
};

void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

/* Sleeps until signalled, with the mutex released meanwhile. Also returns when the task is being killed. */
void cond_wait(struct cond *c, struct mutex *m);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

#endif

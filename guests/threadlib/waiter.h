/*
 * One thread that waits for one event. It lives on the stack of the thread that waits.
 *
 * deschedule() refuses to block once `woken` is set, so a wake-up that comes early is not lost. A wake-up may also come late:
 * the thread has seen `woken` and gone on, perhaps to wait for something else, when make_runnable() reaches it. Hence the
 * loop in waiter_wait: only `woken` counts, not that deschedule() returned.
 */
#ifndef WAITER_H
#define WAITER_H

struct waiter {
    struct waiter *next;
    int tid;
    volatile int woken;
};

void waiter_init(struct waiter *w); /* for the calling thread */
void waiter_wait(struct waiter *w);
void waiter_wake(struct waiter *w); /* after this, *w may be gone */

#endif

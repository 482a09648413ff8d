#include "waiter.h"

#include <stddef.h>

#include "../runtime/syscall.h"

void waiter_init(struct waiter *w)
{
    w->next = NULL;
    w->tid = gettid();
    w->woken = 0;
}

void waiter_wait(struct waiter *w)
{
    while (!w->woken)
        deschedule((const int *)&w->woken);
}

void waiter_wake(struct waiter *w)
{
    int tid = w->tid;
    asm volatile("" : : "r"(tid) : "memory"); /* read before, whatever the compiler would like better */
    w->woken = 1;
    make_runnable(tid);
}

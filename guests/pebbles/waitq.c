/* Wait queues: singly linked through the threads that wait. */
#include "panic.h"
#include "preempt.h"
#include "task.h"
#include "thread.h"

void waitq_add(struct waitq *q, struct thread *t)
{
    assert(preempt_depth > 0);
    t->wait_next = NULL;
    if (q->first)
        q->last->wait_next = t;
    else
        q->first = t;
    q->last = t;
}

struct thread *waitq_take(struct waitq *q)
{
    assert(preempt_depth > 0);
    struct thread *t = q->first;
    if (t) {
        q->first = t->wait_next;
#ifndef FAULT_WAIT_WAIT
        t->wait_next = NULL;
#endif
    }
    return t;
}

void waitq_remove(struct waitq *q, struct thread *t)
{
    struct waitq rest = {NULL, NULL};
    for (struct thread *other; (other = waitq_take(q));)
        if (other != t)
            waitq_add(&rest, other);
    *q = rest;
}

void block_on(struct waitq *q, enum thread_state state)
{
    if (current->task->dying)
        return;
    waitq_add(q, current);
    current->waiting_on = q;
    block(state);
    current->waiting_on = NULL;
}

void thread_interrupt(struct thread *t)
{
    switch (t->state) {
    case THREAD_WAITING:
    case THREAD_SLEEPING:
        waitq_remove(t->waiting_on, t);
        unblock(t);
        break;
    case THREAD_DESCHEDULED:
        unblock(t);
        break;
    case THREAD_RUNNABLE:
    case THREAD_LOCKING:
    case THREAD_DEAD:
        break; /* will notice on its way back to user mode, or never go there again */
    }
}

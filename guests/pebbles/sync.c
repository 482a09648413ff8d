#include "sync.h"

#include "panic.h"
#include "preempt.h"

#ifdef DESIGN_YIELD_MUTEX

void mutex_lock(struct mutex *m)
{
    preempt_disable();
    assert(preempt_depth == 1 && m->owner != current);
    while (m->owner)
        schedule();
    m->owner = current;
    preempt_enable();
}

void mutex_unlock(struct mutex *m)
{
    preempt_disable();
    assert(m->owner == current);
    m->owner = NULL;
    preempt_enable();
}

#else

void mutex_lock(struct mutex *m)
{
    preempt_disable();
    assert(preempt_depth == 1 && m->owner != current);
    if (!m->owner) {
        m->owner = current;
    } else {
        waitq_add(&m->waiters, current);
        block(THREAD_LOCKING);
        assert(m->owner == current); /* mutex_unlock handed it over */
    }
    preempt_enable();
}

void mutex_unlock(struct mutex *m)
{
    preempt_disable();
    assert(m->owner == current);
    m->owner = waitq_take(&m->waiters);
    if (m->owner)
        unblock(m->owner);
    preempt_enable();
}

#endif

void cond_wait(struct cond *c, struct mutex *m)
{
    preempt_disable();
    mutex_unlock(m);
    block_on(&c->waiters, THREAD_WAITING);
    preempt_enable();
    mutex_lock(m);
}

void cond_signal(struct cond *c)
{
    preempt_disable();
    struct thread *t = waitq_take(&c->waiters);
    if (t)
        unblock(t);
    preempt_enable();
}

void cond_broadcast(struct cond *c)
{
    preempt_disable();
    for (struct thread *t; (t = waitq_take(&c->waiters));)
        unblock(t);
    preempt_enable();
}

#include "sem.h"

void sem_init(struct sem *s, int count)
{
    mutex_init(&s->lock);
    cond_init(&s->positive);
    s->count = count;
}

void sem_destroy(struct sem *s)
{
    cond_destroy(&s->positive);
    mutex_destroy(&s->lock);
}

/* Between the signal and the moment the woken thread has the lock again, another may have been quicker. */
void sem_wait(struct sem *s)
{
    mutex_lock(&s->lock);
#ifdef FAULT_SEMAPHORE_LETS_TWO_IN
    if (s->count <= 0)
#else
    while (s->count <= 0)
#endif
        cond_wait(&s->positive, &s->lock);
    s->count--;
    mutex_unlock(&s->lock);
}

void sem_signal(struct sem *s)
{
    mutex_lock(&s->lock);
    s->count++;
    cond_signal(&s->positive);
    mutex_unlock(&s->lock);
}

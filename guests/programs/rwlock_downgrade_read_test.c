/* After a writer has downgraded, a reader gets in beside it, also one that has been waiting. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/rwlock.h"
#include "../threadlib/sem.h"
#include "../threadlib/thr.h"

static struct rwlock lock;
static struct sem reader_inside;
static volatile int writing;

static void *reader(void *arg)
{
    rwlock_lock(&lock, RWLOCK_READ);
    assert(!writing);
    sem_signal(&reader_inside);
    rwlock_unlock(&lock);
    return arg;
}

int main(void)
{
    thr_init(2048);
    rwlock_init(&lock);
    sem_init(&reader_inside, 0);
    rwlock_lock(&lock, RWLOCK_WRITE);
    writing = 1;
    int tid = thr_create(reader, NULL);
    writing = 0;
    rwlock_downgrade(&lock);
    sem_wait(&reader_inside);
    rwlock_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    rwlock_destroy(&lock);
    return 0;
}

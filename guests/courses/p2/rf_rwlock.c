/* After a writer has downgraded, a reader gets in beside it, also one that has been waiting. */
#include <assert.h>
#include <rwlock.h>
#include <sem.h>
#include <stdlib.h>
#include <thread.h>

static rwlock_t lock;
static sem_t reader_inside;
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
    int tid;
    thr_init(4096);
    rwlock_init(&lock);
    sem_init(&reader_inside, 0);
    rwlock_lock(&lock, RWLOCK_WRITE);
    writing = 1;
    tid = thr_create(reader, NULL);
    writing = 0;
    rwlock_downgrade(&lock);
    sem_wait(&reader_inside);
    rwlock_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

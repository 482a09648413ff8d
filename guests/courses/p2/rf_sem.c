/* A semaphore used as a lock: never two threads inside. */
#include <assert.h>
#include <sem.h>
#include <stdlib.h>
#include <thread.h>

static sem_t room;
static volatile int inside;

static void *enter(void *arg)
{
    sem_wait(&room);
    inside++;
    assert(inside == 1);
    inside--;
    sem_signal(&room);
    return arg;
}

int main(void)
{
    int tid;
    thr_init(4096);
    sem_init(&room, 1);
    tid = thr_create(enter, NULL);
    enter(NULL);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

/* One thread waits for a condition; the main thread makes it true and signals. */
#include <assert.h>
#include <cond.h>
#include <mutex.h>
#include <stdlib.h>
#include <thread.h>

static mutex_t lock;
static cond_t changed;
static int ready;

static void *waiter(void *arg)
{
    mutex_lock(&lock);
    while (!ready)
        cond_wait(&changed, &lock);
    mutex_unlock(&lock);
    return arg;
}

int main(void)
{
    int tid;
    thr_init(4096);
    mutex_init(&lock);
    cond_init(&changed);
    tid = thr_create(waiter, NULL);
    mutex_lock(&lock);
    ready = 1;
    cond_signal(&changed);
    mutex_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

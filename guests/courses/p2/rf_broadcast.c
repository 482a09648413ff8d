/* Two threads wait for a condition; the main thread makes it true and broadcasts. */
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
    int one, two;
    thr_init(4096);
    mutex_init(&lock);
    cond_init(&changed);
    one = thr_create(waiter, NULL);
    two = thr_create(waiter, NULL);
    mutex_lock(&lock);
    ready = 1;
    cond_broadcast(&changed);
    mutex_unlock(&lock);
    assert(thr_join(one, NULL) == 0);
    assert(thr_join(two, NULL) == 0);
    return 0;
}

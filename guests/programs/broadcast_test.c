/* One thread waits for a condition, another makes it true and broadcasts. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/cond.h"
#include "../threadlib/thr.h"

static struct mutex lock = MUTEX_INIT;
static struct cond changed = COND_INIT;
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
    thr_init(2048);
    int tid = thr_create(waiter, NULL);
    mutex_lock(&lock);
    ready = 1;
    cond_broadcast(&changed);
    mutex_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

/* Two threads wait for a condition; one broadcast must reach both. The broadcast comes without the lock, as it may. */
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
    int one = thr_create(waiter, NULL), two = thr_create(waiter, NULL);
    mutex_lock(&lock);
    ready = 1;
    mutex_unlock(&lock);
    cond_broadcast(&changed);
    assert(thr_join(one, NULL) == 0);
    assert(thr_join(two, NULL) == 0);
    return 0;
}

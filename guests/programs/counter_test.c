/* Two threads count to two together. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

static struct mutex lock = MUTEX_INIT;
static volatile int counter;

static void *count(void *arg)
{
#ifdef FAULT_COUNTER_WITHOUT_LOCK
    int seen = counter;
    counter = seen + 1;
#else
    mutex_lock(&lock);
    counter++;
    mutex_unlock(&lock);
#endif
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(count, NULL);
    count(NULL);
    assert(thr_join(tid, NULL) == 0);
    assert(counter == 2);
    mutex_destroy(&lock);
    return 0;
}

/* While a writer downgrades, no other writer gets in, also not one that has been waiting. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/rwlock.h"
#include "../threadlib/thr.h"

static struct rwlock lock;
static volatile int value;

static void *writer(void *arg)
{
    rwlock_lock(&lock, RWLOCK_WRITE);
    value = 2;
    rwlock_unlock(&lock);
    return arg;
}

int main(void)
{
    thr_init(2048);
    rwlock_init(&lock);
    rwlock_lock(&lock, RWLOCK_WRITE);
    int tid = thr_create(writer, NULL);
    value = 1;
    rwlock_downgrade(&lock);
    assert(value == 1);
    rwlock_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    assert(value == 2);
    return 0;
}

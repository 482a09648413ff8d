/* Two threads move money between two accounts, in opposite directions. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

static struct account {
    struct mutex lock;
    int money;
} accounts[2] = {{MUTEX_INIT, 10}, {MUTEX_INIT, 10}};

static void transfer(struct account *from, struct account *to)
{
    struct account *first = from, *second = to;
#ifndef FAULT_CIRCULAR_LOCK_ORDER
    if (first > second) {
        first = to;
        second = from;
    }
#endif
    mutex_lock(&first->lock);
    mutex_lock(&second->lock);
    from->money--;
    to->money++;
    mutex_unlock(&second->lock);
    mutex_unlock(&first->lock);
}

static void *back(void *arg)
{
    transfer(&accounts[1], &accounts[0]);
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(back, NULL);
    transfer(&accounts[0], &accounts[1]);
    assert(thr_join(tid, NULL) == 0);
    assert(accounts[0].money == 10 && accounts[1].money == 10);
    return 0;
}

/*
 * A thread waits on one condition variable and then on another. The second wait must not end before the second signal, even
 * if the first signal's wake-up is still on its way. What tells main how far the thread has come uses deschedule directly,
 * since condition variables are what is being tested.
 */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/cond.h"
#include "../threadlib/thr.h"

static struct mutex lock = MUTEX_INIT;
static struct cond first = COND_INIT, second = COND_INIT;
static volatile int second_sent;
static volatile int reached[2];
static int main_tid;

static void reach(int stage)
{
    reached[stage] = 1;
    make_runnable(main_tid);
}

static void await(int stage)
{
    while (!reached[stage])
        deschedule((const int *)&reached[stage]);
    mutex_lock(&lock); /* once we have it, the other is inside cond_wait */
}

static void *sleeper(void *arg)
{
    mutex_lock(&lock);
    reach(0);
    cond_wait(&first, &lock);
    reach(1);
    cond_wait(&second, &lock);
    assert(second_sent);
    mutex_unlock(&lock);
    return arg;
}

int main(void)
{
    thr_init(2048);
    main_tid = thr_getid();
    int tid = thr_create(sleeper, NULL);
    await(0);
    mutex_unlock(&lock);
    cond_signal(&first);
    await(1);
    mutex_unlock(&lock);
    yield(-1); /* time for a wake-up to show that should not have come */
    mutex_lock(&lock);
    second_sent = 1;
    mutex_unlock(&lock);
    cond_signal(&second);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

/*
 * A thread waits on one condition variable and then on another. The second wait must not end before the second signal, even
 * if the first signal's wake-up is still on its way.
 */
#include <assert.h>
#include <cond.h>
#include <mutex.h>
#include <stdlib.h>
#include <syscall.h>
#include <thread.h>

static mutex_t lock;
static cond_t first, second;
static int stage, second_sent;

static void *sleeper(void *arg)
{
    mutex_lock(&lock);
    stage = 1;
    cond_wait(&first, &lock);
    stage = 2;
    cond_wait(&second, &lock);
    assert(second_sent);
    mutex_unlock(&lock);
    return arg;
}

/* Returns with the lock, so that the other thread is inside of cond_wait. */
static void await(int wanted)
{
    mutex_lock(&lock);
    while (stage < wanted) {
        mutex_unlock(&lock);
        yield(-1);
        mutex_lock(&lock);
    }
}

int main(void)
{
    int tid;
    thr_init(4096);
    mutex_init(&lock);
    cond_init(&first);
    cond_init(&second);
    tid = thr_create(sleeper, NULL);
    await(1);
    cond_signal(&first);
    mutex_unlock(&lock);
    await(2);
    mutex_unlock(&lock);
    yield(-1);
    mutex_lock(&lock);
    second_sent = 1;
    cond_signal(&second);
    mutex_unlock(&lock);
    assert(thr_join(tid, NULL) == 0);
    return 0;
}

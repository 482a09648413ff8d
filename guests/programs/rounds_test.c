/* One thread does its work in many rounds and lets others go first after each; then it says that it has done it. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

#define ROUNDS 12

static struct mutex lock = MUTEX_INIT;
static int work;
static volatile int done;

static void *worker(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        mutex_lock(&lock);
        work++;
        mutex_unlock(&lock);
        yield(-1);
    }
    done = 1;
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(worker, NULL);
    int before = done;
#ifdef FAULT_DONE_READ_TWICE
    assert(done == before);
#else
    assert(before == 0 || before == 1);
#endif
    assert(thr_join(tid, NULL) == 0);
    assert(work == ROUNDS);
    mutex_destroy(&lock);
    return 0;
}

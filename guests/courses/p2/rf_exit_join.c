/* A thread exits while it is being joined, and the next one may get its stack. */
#include <assert.h>
#include <stdlib.h>
#include <thread.h>

static void *answer(void *arg)
{
    thr_exit((char *)arg + 1);
    return NULL;
}

int main(void)
{
    void *status = NULL;
    int tid;
    thr_init(4096);
    tid = thr_create(answer, (void *)10);
    assert(thr_join(tid, &status) == 0);
    assert(status == (void *)11);
    tid = thr_create(answer, (void *)20);
    assert(thr_join(tid, &status) == 0);
    assert(status == (void *)21);
    return 0;
}

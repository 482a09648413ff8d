/* Two threads join a third: one of them gets it. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/thr.h"

static int target;

static void *nothing(void *arg)
{
    return arg;
}

static void *joiner(void *arg)
{
    (void)arg;
    return (void *)thr_join(target, NULL);
}

int main(void)
{
    void *other;
    thr_init(2048);
    target = thr_create(nothing, NULL);
    int tid = thr_create(joiner, NULL);
    int mine = thr_join(target, NULL);
    assert(thr_join(tid, &other) == 0);
    assert((mine == 0) + (other == NULL) == 1);
    return 0;
}

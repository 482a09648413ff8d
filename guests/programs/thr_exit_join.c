/* Threads exit while they are being joined, and their stacks are used again. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/thr.h"

static void *answer(void *arg)
{
    thr_exit((char *)arg + 1);
}

int main(void)
{
    thr_init(2048);
    void *one_status, *two_status;
    int one = thr_create(answer, (void *)10);
    assert(thr_join(one, &one_status) == 0);
    int two = thr_create(answer, (void *)20);
    assert(thr_join(two, &two_status) == 0);
    assert(one_status == (void *)11 && two_status == (void *)21);
    assert(thr_join(one, NULL) < 0);
    return 0;
}

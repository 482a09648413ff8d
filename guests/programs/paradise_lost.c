/* A semaphore that was signalled once lets in one at a time, whoever comes just when another is being woken. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/sem.h"
#include "../threadlib/thr.h"

static struct sem turn;
static volatile int inside;

static void critical_section(void)
{
    inside++;
    thr_yield(-1);
    assert(inside == 1);
    inside--;
}

static void *consumer(void *arg)
{
    sem_wait(&turn);
    critical_section();
    sem_signal(&turn);
    return arg;
}

int main(void)
{
    thr_init(2048);
    sem_init(&turn, 0);
    int one = thr_create(consumer, NULL), two = thr_create(consumer, NULL);
    sem_signal(&turn);
    assert(thr_join(one, NULL) == 0);
    assert(thr_join(two, NULL) == 0);
    return 0;
}

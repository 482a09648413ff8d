/* One thread copies a message while another reads it. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

#define WORDS 8

static struct mutex lock = MUTEX_INIT;
static const int source[WORDS] = {1, 1, 1, 1, 1, 1, 1, 1};
static volatile int message[WORDS];

static void copy(volatile int *to, const int *from, int words)
{
    asm volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

static void *writer(void *arg)
{
    mutex_lock(&lock);
    copy(message, source, WORDS);
    mutex_unlock(&lock);
    return arg;
}

int main(void)
{
    thr_init(2048);
    int tid = thr_create(writer, NULL);
#ifndef FAULT_TORN_COPY
    mutex_lock(&lock);
#endif
    int first = message[0];
    int last = message[WORDS - 1];
    assert(!first || last);
#ifndef FAULT_TORN_COPY
    mutex_unlock(&lock);
#endif
    assert(thr_join(tid, NULL) == 0);
    mutex_destroy(&lock);
    return 0;
}

/* What the programs with hardware transactions share: HTM_THREADS threads that each do their work HTM_ITERATIONS times.
   Both are macros, so that one source gives tests of several sizes. The instructions are the processor's own. */
#ifndef HTM_H
#define HTM_H

#include <stddef.h>

#pragma GCC target("rtm")
#include <x86gprintrin.h>

#include "../runtime/stdio.h"
#include "../threadlib/thr.h"

#ifndef HTM_THREADS
#define HTM_THREADS 2
#endif
#ifndef HTM_ITERATIONS
#define HTM_ITERATIONS 1
#endif

/* The code of transactions that abort because somebody is in the fallback. */
#define LOCK_IS_TAKEN 0xff

/* The work of one thread, once; each program has its own. */
static void work(int thread, int iteration);

static void *htm_thread(void *arg)
{
    for (int i = 0; i < HTM_ITERATIONS; i++)
        work((int)arg, i);
    return arg;
}

/* Returns when all threads, of which the calling one is the first, have done their work. */
static void htm_run(void)
{
    int tids[HTM_THREADS];

    thr_init(2048);
    for (int i = 1; i < HTM_THREADS; i++) {
        tids[i] = thr_create(htm_thread, (void *)i);
        assert(tids[i] > 0);
    }
    htm_thread((void *)0);
    for (int i = 1; i < HTM_THREADS; i++)
        assert(thr_join(tids[i], NULL) == 0);
}

#endif

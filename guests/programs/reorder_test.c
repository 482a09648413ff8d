/*
 * Many threads write two variables, one after the other, and one thread looks at both. It must see both written or neither: it
 * does unless it comes between the two writes of whoever is first.
 */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

#ifndef WRITERS
#define WRITERS 2
#endif

#ifndef FAULT_REORDER
static struct mutex lock = MUTEX_INIT;
#endif
static volatile int first, second;

static void *writer(void *arg)
{
#ifdef FAULT_REORDER
    first = 1;
    second = -1;
#else
    mutex_lock(&lock);
    first = 1;
    second = -1;
    mutex_unlock(&lock);
#endif
    return arg;
}

static void *checker(void *arg)
{
#ifdef FAULT_REORDER
    int one = first, other = second;
#else
    mutex_lock(&lock);
    int one = first, other = second;
    mutex_unlock(&lock);
#endif
    assert((one == 0 && other == 0) || (one == 1 && other == -1));
    return arg;
}

#include "writers_and_checker.h"

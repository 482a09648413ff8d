/*
 * Many threads work in two stages, each under a lock of its own: a value, then what follows from it. One thread that finds
 * the value expects what follows from it, which is there unless whoever is first stands between its two stages.
 */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../threadlib/mutex.h"
#include "../threadlib/thr.h"

#ifndef WRITERS
#define WRITERS 2
#endif

static struct mutex stage_one = MUTEX_INIT, stage_two = MUTEX_INIT;
static int value, successor;

static void *writer(void *arg)
{
    mutex_lock(&stage_one);
    value = 1;
#ifdef FAULT_TWOSTAGE
    mutex_unlock(&stage_one);
    mutex_lock(&stage_two);
    successor = value + 1;
    mutex_unlock(&stage_two);
#else
    mutex_lock(&stage_two);
    successor = value + 1;
    mutex_unlock(&stage_two);
    mutex_unlock(&stage_one);
#endif
    return arg;
}

static void *checker(void *arg)
{
    mutex_lock(&stage_one);
    int one = value;
    mutex_unlock(&stage_one);
    if (one == 0)
        return arg;
    mutex_lock(&stage_two);
    int other = successor;
    mutex_unlock(&stage_two);
    assert(other == one + 1);
    return arg;
}

#include "writers_and_checker.h"

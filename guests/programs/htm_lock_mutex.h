/* The elided lock as a mutex, whose holder says that it is taken. */
#include "htm_lock.h"

#include "../threadlib/mutex.h"

static struct mutex lock = MUTEX_INIT;
static volatile int lock_taken;

static int lock_is_free(void)
{
    return !lock_taken;
}

static void lock_take(void)
{
    mutex_lock(&lock);
    lock_taken = 1;
}

static void lock_give(void)
{
    lock_taken = 0;
    mutex_unlock(&lock);
}

static void lock_await(void)
{
    mutex_lock(&lock);
    mutex_unlock(&lock);
}

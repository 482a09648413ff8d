/* The elided lock as a word to spin on. LOCK_LOOK says how a transaction looks whether it is free. */
#include "htm_lock.h"

#include "../threadlib/atomic.h"

static volatile int lock_word;

static int lock_is_free(void)
{
    return LOCK_LOOK(&lock_word) == 0;
}

static void lock_await(void)
{
    while (lock_word)
        asm volatile("pause");
}

static void lock_take(void)
{
    while (atomic_exchange(&lock_word, 1))
        lock_await();
}

static void lock_give(void)
{
    lock_word = 0;
}

/* Two accounts, each with a mutex; a transfer takes both, the one it takes from first. */
#include <linux/mutex.h>

#include "rockfall_module.h"

static DEFINE_MUTEX(left_lock);
static DEFINE_MUTEX(right_lock);
static long left = 100, right = 100;

static long transfer(struct mutex *from_lock, long *from, struct mutex *to_lock, long *to)
{
#ifdef MENDED
    struct mutex *first = from_lock < to_lock ? from_lock : to_lock;
    struct mutex *second = first == from_lock ? to_lock : from_lock;
#else
    struct mutex *first = from_lock, *second = to_lock;
#endif
    mutex_lock(first);
    mutex_lock(second);
    *from -= 1;
    *to += 1;
    mutex_unlock(second);
    mutex_unlock(first);
    return 0;
}

static long to_right(unsigned long unused) { return transfer(&left_lock, &left, &right_lock, &right); }
static long to_left(unsigned long unused) { return transfer(&right_lock, &right, &left_lock, &left); }
static long sum(unsigned long unused) { return left + right; }

ROCKFALL_MODULE(abba, nothing_to_begin, nothing_to_end, to_right, to_left, sum);

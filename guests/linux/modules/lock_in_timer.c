/*
 * A lock that the handler of a timer takes too, held with interrupts on: if the timer's moment comes in between, the handler
 * waits for whom it has interrupted.
 */
#include <linux/hrtimer.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

static DEFINE_SPINLOCK(lock);
static int value;
static struct hrtimer timer;

static enum hrtimer_restart handler(struct hrtimer *unused)
{
    spin_lock(&lock);
    value++;
    spin_unlock(&lock);
    return HRTIMER_NORESTART;
}

static int begin(void)
{
    hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
    timer.function = handler;
    return 0;
}

/* The timer belongs to the processor that arms it. */
static long arm(unsigned long unused)
{
    hrtimer_start(&timer, ns_to_ktime(100 * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED);
    return 0;
}

static long update(unsigned long unused)
{
#ifdef MENDED
    spin_lock_irq(&lock);
    value++;
    spin_unlock_irq(&lock);
#else
    spin_lock(&lock);
    value++;
    spin_unlock(&lock);
#endif
    return 0;
}

/* How often it was updated, the handler's own time not counted. */
static long look(unsigned long unused)
{
    return hrtimer_cancel(&timer) ? value : value - 1;
}

static void end(void) { hrtimer_cancel(&timer); }

ROCKFALL_MODULE(lock_in_timer, begin, end, arm, update, look);

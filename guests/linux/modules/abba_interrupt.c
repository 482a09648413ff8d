/*
 * One processor asks the other to do something and waits for it while it holds a lock; the other waits for that lock with
 * interrupts off, so that it cannot hear.
 */
#include <linux/smp.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

static DEFINE_SPINLOCK(lock);
static int asked, value;

static void on_other(void *unused) { asked++; }

static long update(unsigned long unused)
{
    spin_lock_irq(&lock);
    value++;
    spin_unlock_irq(&lock);
    return 0;
}

/* Called on processor 1; processor 0 is asked. */
static long ask(unsigned long unused)
{
    spin_lock(&lock);
    value++;
#ifdef MENDED
    spin_unlock(&lock);
    smp_call_function_single(0, on_other, NULL, 1);
#else
    smp_call_function_single(0, on_other, NULL, 1);
    spin_unlock(&lock);
#endif
    return 0;
}

static long look(unsigned long unused) { return 10 * value + asked; }

ROCKFALL_MODULE(abba_interrupt, nothing_to_begin, nothing_to_end, update, ask, look);

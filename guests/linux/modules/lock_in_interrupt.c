/* A lock that an interrupt takes too, held with interrupts on: the interrupt waits for whom it has interrupted. */
#include <linux/smp.h>
#include <linux/spinlock.h>

#include "rockfall_module.h"

static DEFINE_SPINLOCK(lock);
static int value;

static void interrupted(void *unused)
{
    spin_lock(&lock);
    value++;
    spin_unlock(&lock);
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

/* Called on processor 1; processor 0 is interrupted. */
static long interrupt_other(unsigned long unused) { return smp_call_function_single(0, interrupted, NULL, 1); }

static long look(unsigned long unused) { return value; }

ROCKFALL_MODULE(lock_in_interrupt, nothing_to_begin, nothing_to_end, update, interrupt_other, look);

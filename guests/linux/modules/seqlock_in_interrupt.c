/*
 * A pair that an interrupt reads too, changed with interrupts on: the interrupt reads again and again until the change is over,
 * and waits so for whom it has interrupted. Readers of a sequence lock take no lock, so no rule about locks is broken.
 */
#include <linux/seqlock.h>
#include <linux/smp.h>

#include "rockfall_module.h"

static DEFINE_SEQLOCK(lock);
static long first, second;

static long look(unsigned long unused)
{
    unsigned int sequence;
    long a, b;

    do {
        sequence = read_seqbegin(&lock);
        a = READ_ONCE(first);
        b = READ_ONCE(second);
    } while (read_seqretry(&lock, sequence));
    return a == b ? a : -EIO;
}

static void interrupted(void *seen) { *(long *)seen = look(0); }

static long change(unsigned long unused)
{
#ifdef MENDED
    write_seqlock_irq(&lock);
#else
    write_seqlock(&lock);
#endif
    WRITE_ONCE(first, first + 1);
    WRITE_ONCE(second, second + 1);
#ifdef MENDED
    write_sequnlock_irq(&lock);
#else
    write_sequnlock(&lock);
#endif
    return 0;
}

/* Called on processor 1; processor 0 is interrupted. */
static long interrupt_other(unsigned long unused)
{
    long seen = -EIO;
    int error = smp_call_function_single(0, interrupted, &seen, 1);

    return error ? error : seen < 0 ? seen : 0;
}

ROCKFALL_MODULE(seqlock_in_interrupt, nothing_to_begin, nothing_to_end, change, interrupt_other, look);

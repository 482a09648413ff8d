/*
 * One thread sleeps when there is no work, as kernels' threads do: it says so and looks for work once more. The other one
 * leaves work and looks whether to wake it. Each must have said its part to all before it looks at the other's.
 */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"
#ifdef FAULT_SLEEP_FLAG_UNFENCED
#define UNFENCED
#endif
#include "fence.h"

static volatile int work, sleeping, woken;
static int sleeper;
static struct spawn_stack stack;

static void producer(void)
{
    work = 1;
    fence();
    if (sleeping) {
        woken = 1;
        make_runnable(sleeper);
    }
    vanish();
}

int main(void)
{
    sleeper = gettid();
    SPAWN(stack, producer);
    sleeping = 1;
    fence();
    if (!work)
        deschedule((const int *)&woken);
    vanish();
}

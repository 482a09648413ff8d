/* Dekker's mutual exclusion of two threads. A thread must have announced itself to all before it looks for the other. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#ifdef FAULT_DEKKER_UNFENCED
#define UNFENCED
#endif
#include "fence.h"

static volatile int wants[2], turn, inside;
static struct spawn_stack stack;

static void section(int me)
{
    wants[me] = 1;
    fence();
    while (wants[1 - me]) {
        if (turn == me)
            continue;
        wants[me] = 0;
        while (turn != me)
            asm volatile("pause");
        wants[me] = 1;
        fence();
    }
    assert(!inside);
    inside = 1;
    inside = 0;
    turn = 1 - me;
    wants[me] = 0;
}

static void other(void)
{
    section(1);
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    section(0);
    vanish();
}

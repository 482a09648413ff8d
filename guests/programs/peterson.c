/* Peterson's mutual exclusion of two threads. A thread must have announced itself to all before it looks for the other. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#ifdef FAULT_PETERSON_UNFENCED
#define UNFENCED
#endif
#include "fence.h"

static volatile int interested[2], turn, inside;
static struct spawn_stack stack;

static void section(int me)
{
    interested[me] = 1;
    turn = 1 - me;
    fence();
    while (interested[1 - me] && turn == 1 - me)
        asm volatile("pause");
    assert(!inside);
    inside = 1;
    inside = 0;
    interested[me] = 0;
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

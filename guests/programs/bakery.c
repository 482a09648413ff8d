/* Lamport's bakery: whoever has the lowest number is served. That a thread picks a number, and which, must be visible to all
 * before it looks at the others'. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#ifdef FAULT_BAKERY_UNFENCED
#define UNFENCED
#endif
#include "fence.h"

static volatile int choosing[2], number[2], inside;
static struct spawn_stack stack;

static int is_first(int me, int other)
{
    int mine = number[me], theirs = number[other];
    return theirs == 0 || mine < theirs || (mine == theirs && me < other);
}

static void section(int me)
{
    int other = 1 - me;
    choosing[me] = 1;
    fence();
    number[me] = number[other] + 1;
    choosing[me] = 0;
    fence();
    while (choosing[other])
        asm volatile("pause");
    while (!is_first(me, other))
        asm volatile("pause");
    assert(!inside);
    inside = 1;
    inside = 0;
    number[me] = 0;
}

static void second(void)
{
    section(1);
    vanish();
}

int main(void)
{
    SPAWN(stack, second);
    section(0);
    vanish();
}

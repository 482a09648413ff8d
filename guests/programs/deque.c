/*
 * A deque of work: its owner takes from the bottom, a thief steals from the top. The owner must have taken an item out, for all
 * to see, before it looks at the top: only over the last item do the two meet in a compare-and-swap.
 */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"
#ifdef FAULT_DEQUE_UNFENCED
#define UNFENCED
#endif
#include "fence.h"

enum { ITEMS = 2, NONE = -1 };

static volatile int top, bottom = ITEMS;
static volatile int done[ITEMS];
static struct spawn_stack stack;

static void work(int item)
{
    if (item != NONE)
        assert(atomic_exchange(&done[item], 1) == 0);
}

static int take(void)
{
    int last = bottom - 1;
    bottom = last;
    fence();
    int first = top;
    if (first < last)
        return last;
    int item = NONE;
    if (first == last && atomic_compare_swap(&top, first, first + 1) == first)
        item = last;
    bottom = last + 1;
    return item;
}

static int steal(void)
{
    int first = top;
    if (first >= bottom)
        return NONE;
    return atomic_compare_swap(&top, first, first + 1) == first ? first : NONE;
}

static void thief(void)
{
    for (int i = 0; i < ITEMS; i++)
        work(steal());
    vanish();
}

int main(void)
{
    SPAWN(stack, thief);
    work(take());
    vanish();
}

/* Two threads take a lock by exchange, and count how often they tried in vain. */
#include "runtime/spawn.h"
#include "runtime/stdio.h"
#include "runtime/syscall.h"
#include "threadlib/atomic.h"

static volatile int lock, inside, tries;
static struct spawn_stack stack;

static void enter(void)
{
    while (atomic_exchange(&lock, 1))
        tries++;
    assert(inside == 0);
    inside = 1;
    inside = 0;
    atomic_exchange(&lock, 0);
}

static void other(void)
{
    enter();
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    enter();
    vanish();
}

/* The same as spin_test, but whoever waits yields. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"

static volatile int locked, done;
static int counter;
static struct spawn_stack stack;

static void count(void)
{
    while (atomic_exchange(&locked, 1))
        yield(-1);
    counter++;
    locked = 0;
}

static void other(void)
{
    count();
    done = 1;
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    count();
    while (!done)
        yield(-1);
    assert(counter == 2);
    vanish();
}

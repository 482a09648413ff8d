/* One thread waits for time to pass by looking at the clock, while another works. */
#include "runtime/spawn.h"
#include "runtime/stdio.h"
#include "runtime/syscall.h"

static volatile int worked;
static struct spawn_stack stack;

static void other(void)
{
    worked = 1;
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    unsigned begun = get_ticks();
    while (get_ticks() - begun < 3)
        continue;
    assert(worked == 0 || worked == 1);
    vanish();
}

/* Main waits for another thread and counts how often it looked. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static volatile int done;
static int looked;
static struct spawn_stack stack;

static void other(void)
{
    done = 1;
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    while (!done) {
        looked++;
        yield(-1);
    }
    assert(looked >= 0);
    vanish();
}

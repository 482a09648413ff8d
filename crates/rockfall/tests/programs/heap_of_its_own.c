/* Two threads take blocks from an allocator that nobody guards. */
#include "runtime/spawn.h"
#include "runtime/stdio.h"
#include "runtime/syscall.h"

static char blocks[4][16];
static volatile int taken;
static volatile int done;
static void *volatile theirs;
static struct spawn_stack stack;

__attribute__((noinline)) void *take(unsigned size)
{
    int mine = taken;
    taken = mine + 1;
    return size <= sizeof blocks[0] ? blocks[mine] : 0;
}

static void other(void)
{
    theirs = take(8);
    done = 1;
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    void *own = take(8);
    while (!done)
        yield(-1);
    assert(own != theirs);
    vanish();
}

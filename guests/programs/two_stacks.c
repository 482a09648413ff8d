/* Two threads that share nothing, not even their stacks. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static struct spawn_stack stacks[2];

#ifdef FAULT_STACK_GIVEN_TWICE
#define SECOND stacks[0]
#else
#define SECOND stacks[1]
#endif

__attribute__((noinline)) static int climb(int calls)
{
    return calls == 0 ? 0 : climb(calls - 1) + 1;
}

__attribute__((noinline)) static int descend(int calls)
{
    return calls == 0 ? 0 : descend(calls - 1) - 1;
}

static void up(void)
{
    assert(climb(2) == 2);
    vanish();
}

static void down(void)
{
    assert(descend(2) == -2);
    vanish();
}

int main(void)
{
    SPAWN(stacks[0], up);
    SPAWN(SECOND, down);
    vanish();
}

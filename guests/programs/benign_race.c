/*
 * Two threads race, and it does not matter: both set the same flag to the same value, and whether one sees the other's hint
 * decides only whether it does some work again.
 */
#include <stddef.h>

#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static volatile int prepared, result;
static struct spawn_stack stack;

static void prepare(void)
{
    if (prepared)
        return;
    result = 42;
    prepared = 1;
}

static void other(void)
{
    prepare();
    assert(result == 42);
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    prepare();
    assert(result == 42);
    vanish();
}

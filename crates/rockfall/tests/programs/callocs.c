/* Blocks that come from calloc(), which has its own way to them, and from realloc(), which asks malloc(). */
#include "runtime/spawn.h"
#include "runtime/stdio.h"
#include "runtime/syscall.h"
#include "threadlib/malloc.h"

static char blocks[4][16];
static volatile int taken;
static volatile int done;
static struct spawn_stack stack;

__attribute__((noinline)) void *calloc(size_t count, size_t size)
{
    return count * size <= sizeof blocks[0] ? blocks[taken++] : 0;
}

__attribute__((noinline)) void *realloc(void *block, size_t size)
{
    char *other = malloc(size);
    *other = *(char *)block;
    taken--;
    return other;
}

static void other(void)
{
    done = 1;
    vanish();
}

int main(void)
{
    char *block = realloc(calloc(2, 4), 12);
    *block = 1;
    free(block);
    SPAWN(stack, other);
    while (!done)
        yield(-1);
    vanish();
}

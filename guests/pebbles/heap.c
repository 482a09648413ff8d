#include "heap.h"

#include "../lib/arena.h"
#include "panic.h"
#include "preempt.h"

enum { HEAP_SIZE = 1 << 20 };

static struct arena arena;
static char memory[HEAP_SIZE] __attribute__((aligned(8)));

void heap_init(void)
{
    arena_init(&arena, memory, sizeof memory);
}

void *malloc(size_t size)
{
    preempt_disable();
    void *block = arena_take(&arena, size);
    preempt_enable();
    return block;
}

void free(void *block)
{
    if (!block)
        return;
    preempt_disable();
    enum arena_result result = arena_give(&arena, block);
    preempt_enable();
    if (result != ARENA_OK)
        panic("free(%p): %s", block, result == ARENA_FREED_TWICE ? "freed twice" : "never allocated");
}

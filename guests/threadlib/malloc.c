#include "malloc.h"

#include "../lib/arena.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "mutex.h"

enum { HEAP_SIZE = 64 * 1024 };
#define HEAP_BASE ((void *)0x20000000)

static struct mutex lock = MUTEX_INIT;
static struct arena arena;

void *malloc(size_t size)
{
    mutex_lock(&lock);
    if (!arena.start) {
        if (new_pages(HEAP_BASE, HEAP_SIZE) < 0)
            panic("no memory for the heap");
        arena_init(&arena, HEAP_BASE, HEAP_SIZE);
    }
    void *block = arena_take(&arena, size);
    mutex_unlock(&lock);
    return block;
}

void free(void *block)
{
    if (!block)
        return;
    mutex_lock(&lock);
    enum arena_result result = arena_give(&arena, block);
    mutex_unlock(&lock);
    if (result != ARENA_OK)
        panic("free(%p): %s", block, result == ARENA_FREED_TWICE ? "freed twice" : "never allocated");
}

/*
 * A first-fit allocator over one stretch of memory, shared by the kernel's heap and the programs' heap.
 *
 * Blocks lie side by side, each behind a header; free neighbours are merged while searching. The arena does no locking:
 * its two users wrap it in the lock of their world.
 */
#ifndef LIB_ARENA_H
#define LIB_ARENA_H

#include <stddef.h>

struct arena {
    char *start, *end;
};

enum arena_result { ARENA_OK, ARENA_NOT_A_BLOCK, ARENA_FREED_TWICE };

void arena_init(struct arena *a, void *memory, size_t size);
void *arena_take(struct arena *a, size_t size);
enum arena_result arena_give(struct arena *a, void *block);

#endif

#include "arena.h"

#include <stdint.h>

enum { USED = 0x5eed0a11, FREE = 0x0f4ee000 };

struct header {
    uint32_t size; /* of the block behind the header, a multiple of 8 */
    uint32_t mark;
};

static struct header *after(struct header *h)
{
    return (struct header *)((char *)(h + 1) + h->size);
}

void arena_init(struct arena *a, void *memory, size_t size)
{
    a->start = memory;
    a->end = a->start + size;
    struct header *all = memory;
    all->size = size - sizeof *all;
    all->mark = FREE;
}

void *arena_take(struct arena *a, size_t size)
{
    size = (size + 7) & ~7u;
    for (struct header *h = (struct header *)a->start; (char *)h < a->end; h = after(h)) {
        if (h->mark != FREE)
            continue;
        for (struct header *n = after(h); (char *)n < a->end && n->mark == FREE; n = after(h))
            h->size += sizeof *n + n->size;
        if (h->size < size)
            continue;
        if (h->size >= size + sizeof *h + 8) {
            uint32_t rest = h->size - size - sizeof *h;
            h->size = size;
            struct header *n = after(h);
            n->size = rest;
            n->mark = FREE;
        }
        h->mark = USED;
        return h + 1;
    }
    return NULL;
}

enum arena_result arena_give(struct arena *a, void *block)
{
    struct header *h = (struct header *)block - 1;
    if ((char *)h < a->start || (char *)block >= a->end)
        return ARENA_NOT_A_BLOCK;
    if (h->mark == FREE)
        return ARENA_FREED_TWICE;
    if (h->mark != USED)
        return ARENA_NOT_A_BLOCK;
    h->mark = FREE;
    return ARENA_OK;
}

/*
 * Dirties pages: the measurer stops at `dirty_begin`, takes a checkpoint, runs to `dirty_end`, and restores.
 * One word is written to each of `repeat` pages.
 */
#include "guest.h"

static u32 pages[1024][1024] __attribute__((aligned(4096)));
static volatile u32 rounds;

NOINLINE void dirty_begin(void) { rounds++; }
NOINLINE void dirty_end(void) { rounds++; }

void guest_main(u32 repeat) {
    for (u32 i = 0; i < LEN(pages); i++) pages[i][0] = i;
    mark("prepare", 0);
    dirty_begin();
    for (u32 i = 0; i < repeat; i++) pages[i][i & 1023]++;
    dirty_end();
    mark("dirty", rounds);
}

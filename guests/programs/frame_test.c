/* Main asks another thread for answers, which that thread writes into main's frame. */
#include <stddef.h>

#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/mutex.h"

#define ANSWERS 8

static int *volatile place;
static volatile int done;
static struct spawn_stack stack;
static struct mutex lock = MUTEX_INIT;

static void answer(void)
{
    for (int i = 0; i < ANSWERS; i++)
        place[i] = 42;
    done = 1;
    vanish();
}

__attribute__((noinline)) static void ask(void)
{
    int answers[ANSWERS];
    place = answers;
    SPAWN(stack, answer);
#ifndef FAULT_FRAME_LEFT_EARLY
    while (!done)
        yield(-1);
#endif
}

/* Calls that use the same part of the stack. */
__attribute__((noinline)) static int deep(int calls)
{
    if (calls == 0) {
        mutex_lock(&lock);
        mutex_unlock(&lock);
        return 0;
    }
    return deep(calls - 1) + 1;
}

int main(void)
{
    ask();
    assert(deep(4) == 4);
    vanish();
}

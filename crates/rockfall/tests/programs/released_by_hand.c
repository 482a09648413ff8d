/*
 * A thread that ends gives back the lock it holds without the function for that, as libraries do whose thread frees the stack
 * it stands on. Whoever waits for the lock does so by yielding.
 */
#include "runtime/spawn.h"
#include "runtime/stdio.h"
#include "runtime/syscall.h"
#include "threadlib/atomic.h"

static volatile int gate, inside;
static struct spawn_stack stack;

void gate_lock(volatile int *taken)
{
    while (atomic_exchange(taken, 1))
        yield(-1);
}

void gate_unlock(volatile int *taken)
{
    atomic_exchange(taken, 0);
}

static void other(void)
{
    gate_lock(&gate);
    inside++;
#ifndef KEEP_GATE
    atomic_exchange(&gate, 0);
#endif
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    gate_lock(&gate);
    inside++;
    gate_unlock(&gate);
    vanish();
}

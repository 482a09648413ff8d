/* A thread sleeps with a lock of the program in its hand; another spins for that lock, which gives the processor away by the timer alone. */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"

static volatile int taken;
static struct spawn_stack stack;

static void acquire(void)
{
    while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE))
        ;
}

static void release(void) { __atomic_store_n(&taken, 0, __ATOMIC_RELEASE); }

static void other(void)
{
    acquire();
    release();
    vanish();
}

int main(void)
{
    acquire();
    SPAWN(stack, other);
    sleep(2);
    release();
    vanish();
}

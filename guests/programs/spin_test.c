/* Two threads with a lock that spins, and one that spins until the other is done: nobody ever yields. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"

static volatile int locked, done;
static int counter, main_tid;
static struct spawn_stack stack;

static void spin_lock(void)
{
    while (atomic_exchange(&locked, 1))
        asm volatile("pause");
}

static void spin_unlock(void)
{
    locked = 0;
}

static void count(int tid)
{
    (void)tid;
    spin_lock();
    counter++;
#ifdef FAULT_SPIN_LOCK_KEPT
    if (counter == 2 && tid == main_tid)
        return;
#endif
    spin_unlock();
}

static void other(void)
{
    count(0);
    done = 1;
    vanish();
}

int main(void)
{
    main_tid = gettid();
    SPAWN(stack, other);
    count(main_tid);
    while (!done)
        continue;
    spin_lock();
    assert(counter == 2);
    spin_unlock();
    vanish();
}

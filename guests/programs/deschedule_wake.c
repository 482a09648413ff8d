/* One thread goes to sleep unless told not to; another tells it, and wakes it in case it sleeps. */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"

static volatile int reject;
static int sleeper;
static struct spawn_stack stack;

static void waker(void)
{
    reject = 1;
    make_runnable(sleeper);
    vanish();
}

int main(void)
{
    sleeper = gettid();
    SPAWN(stack, waker);
    while (!reject)
        deschedule((const int *)&reject);
    vanish();
}

/* Whoever exchanges second finds what the first has left. The magic_ variables are for whoever looks at the memory once both threads are gone. */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"

volatile int magic_global_value = 0;
int magic_global_expected_result = 1;
int magic_expected_sum = 1;
int magic_thread_local_value_parent, magic_thread_local_value_child;

static struct spawn_stack stack;

static void child(void)
{
    magic_thread_local_value_child = atomic_exchange(&magic_global_value, 1);
    vanish();
}

int main(void)
{
    SPAWN(stack, child);
    magic_thread_local_value_parent = atomic_exchange(&magic_global_value, 1);
    vanish();
}

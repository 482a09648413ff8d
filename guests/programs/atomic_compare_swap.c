/* One of two wins; the other finds the winner's value. The magic_ variables are for whoever looks once both are gone. */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"

volatile int magic_global_value = 0;
int magic_expected_sum_minus_result = 0;
int magic_thread_local_value_parent, magic_thread_local_value_child;

static struct spawn_stack stack;

static void child(void)
{
    magic_thread_local_value_child = atomic_compare_swap(&magic_global_value, 0, 2);
    vanish();
}

int main(void)
{
    SPAWN(stack, child);
    magic_thread_local_value_parent = atomic_compare_swap(&magic_global_value, 0, 1);
    vanish();
}

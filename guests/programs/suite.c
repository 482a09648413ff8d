/* Runs the other programs one after the other and says which of them fail. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static char *programs[] = {
    /* the kernel */
    "life_test", "kill_test", "sched_test", "swexn_test", "memory_test", "console_test", "bad_pointer_test",
    "vanish_vanish", "double_wait", "double_thread_fork", "yield_vanish", "fork_wait", "deschedule_wake", "print_remove",
    "double_new_pages", "neighbour_pages", "vanish_new_pages", "thread_fork_thread_fork", "call_order",
    /* the thread library */
    "mutex_test", "broadcast_test", "broadcast_two_waiters", "paradise_lost", "paraguay", "rwlock_downgrade_read_test",
    "rwlock_downgrade_write_test", "thr_exit_join", "double_join", "atomic_exchange", "atomic_compare_swap",
    "atomic_fetch_add", "atomic_fetch_sub",
    /* programs that use it */
    "counter_test", "queue_test", "publish_test", "lock_order_test", "benign_race", "lockfree_queue", "spin_test",
    "yield_test", "refcount_test", "scan_test",
    /* all at once */
    "storm_test", "fork_bomb_test",
};

int main(void)
{
    int failures = 0;
    for (unsigned i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        char *argv[] = {programs[i], NULL};
        int status, tid = fork();
        if (tid == 0) {
            exec(programs[i], argv);
            exit(-1);
        }
        assert(wait(&status) == tid);
        if (status != 0) {
            printf("suite: %s: status %d\n", programs[i], status);
            failures++;
        }
    }
    printf("suite: %d of %d passed\n", (int)(sizeof programs / sizeof programs[0]) - failures,
           (int)(sizeof programs / sizeof programs[0]));
    return failures;
}

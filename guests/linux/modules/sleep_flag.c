/*
 * A sleeper says that it sleeps and then looks whether there is something to do; who brings something says so and then looks whether
 * anybody sleeps. Without barriers each look may come before the other's word is seen: nobody is woken.
 */
#include <linux/sched.h>

#include "rockfall_module.h"

static struct task_struct *sleeper;
static int ready;

static long await(unsigned long unused)
{
    set_current_state(TASK_INTERRUPTIBLE);
    WRITE_ONCE(sleeper, current);
    mended_barrier();
    if (!READ_ONCE(ready))
        schedule();
    __set_current_state(TASK_RUNNING);
    WRITE_ONCE(sleeper, NULL);
    return READ_ONCE(ready) ? 0 : -EINTR;
}

static long wake(unsigned long unused)
{
    struct task_struct *task;

    WRITE_ONCE(ready, 1);
    mended_barrier();
    task = READ_ONCE(sleeper);
    if (task)
        wake_up_process(task);
    return 0;
}

ROCKFALL_MODULE(sleep_flag, nothing_to_begin, nothing_to_end, await, wake);

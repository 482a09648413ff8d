/* A waiter that looks first and says that it sleeps afterwards: who wakes it in between wakes nobody. */
#include <linux/sched.h>
#include <linux/wait.h>

#include "rockfall_module.h"

static DECLARE_WAIT_QUEUE_HEAD(queue);
static int ready;

static long await(unsigned long unused)
{
#ifdef MENDED
    return wait_event_interruptible(queue, READ_ONCE(ready));
#else
    DEFINE_WAIT(wait);

    if (READ_ONCE(ready))
        return 0;
    prepare_to_wait(&queue, &wait, TASK_INTERRUPTIBLE);
    schedule();
    finish_wait(&queue, &wait);
    return READ_ONCE(ready) ? 0 : -EINTR;
#endif
}

static long wake(unsigned long unused)
{
    WRITE_ONCE(ready, 1);
    wake_up(&queue);
    return 0;
}

ROCKFALL_MODULE(lost_wakeup, nothing_to_begin, nothing_to_end, await, wake);

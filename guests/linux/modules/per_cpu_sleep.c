/*
 * A per-CPU counter whose place is looked up before a sleep and used after it: meanwhile another task of the same processor
 * (or, for a task that moved, that of another) has counted too.
 */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/percpu.h>

#include "rockfall_module.h"

static DEFINE_PER_CPU(long, counter);
static DEFINE_MUTEX(lock);
static DECLARE_COMPLETION(go);
static DECLARE_COMPLETION(done);
static struct task_struct *helper;

static int helper_body(void *unused)
{
    while (!wait_for_completion_interruptible(&go) && !kthread_should_stop()) {
        this_cpu_inc(counter);
        complete(&done);
    }
    return 0;
}

static int begin(void)
{
    helper = kthread_create(helper_body, NULL, "per_cpu_helper");
    if (IS_ERR(helper))
        return PTR_ERR(helper);
    kthread_bind(helper, 0);
    wake_up_process(helper);
    return 0;
}

/* Called on processor 0. */
static long count(unsigned long unused)
{
#ifdef MENDED
    mutex_lock(&lock);
    this_cpu_inc(counter);
    mutex_unlock(&lock);
#else
    long *mine = raw_cpu_ptr(&counter), old = READ_ONCE(*mine);

    mutex_lock(&lock);
    WRITE_ONCE(*mine, old + 1);
    mutex_unlock(&lock);
#endif
    return 0;
}

/* Called on processor 1: lets the helper count on processor 0. */
static long let_count(unsigned long unused)
{
    mutex_lock(&lock);
    complete(&go);
    wait_for_completion(&done);
    mutex_unlock(&lock);
    return 0;
}

/* On all processors: what counted before the test may have run on any. */
static long look(unsigned long unused)
{
    long sum = 0;
    int cpu;

    for_each_possible_cpu(cpu)
        sum += per_cpu(counter, cpu);
    return sum;
}

static void end(void)
{
    complete_all(&go);
    kthread_stop(helper);
}

ROCKFALL_MODULE(per_cpu_sleep, begin, end, count, let_count, look);

/* Threads among themselves: who am I, who runs next, who wakes whom. */
#include "preempt.h"
#include "syscall.h"
#include "task.h"
#include "timer.h"

int sys_gettid(struct ureg *u)
{
    (void)u;
    return current->tid;
}

/* yield(-1) lets anyone run, yield(tid) that thread, unless it cannot. */
int sys_yield(struct ureg *u)
{
    int tid = (int)u->esi, result = 0;
    if (tid == -1) {
        yield();
        return 0;
    }
    /* The thread found may end as soon as it is allowed to run: it must be looked up and switched to in one go. */
    preempt_disable();
    struct thread *t = thread_find(tid);
#ifdef FAULT_YIELD_VANISH
    preempt_enable();
    preempt_disable();
#endif
    if (t && t->state == THREAD_RUNNABLE)
        schedule_to(t);
    else
        result = SYSCALL_ERROR;
    preempt_enable();
    return result;
}

/* Blocks unless *reject is not zero. To look and to block is one step with respect to make_runnable. */
int sys_deschedule(struct ureg *u)
{
    int reject, result = 0;
    preempt_disable();
    if (!copy_from_user(&reject, u->esi, sizeof reject)) {
        result = SYSCALL_ERROR;
    } else if (!reject && !current->task->dying) {
#ifdef FAULT_INTERRUPTS_TOO_EARLY
        preempt_enable();
        preempt_disable();
#endif
        block(THREAD_DESCHEDULED);
    }
    preempt_enable();
    return result;
}

int sys_make_runnable(struct ureg *u)
{
    int result = 0;
    preempt_disable();
    struct thread *t = thread_find((int)u->esi);
    if (t && t->state == THREAD_DESCHEDULED) {
        unblock(t);
        if (current->task->misbehave & MISBEHAVE_WOKEN_FIRST)
            schedule_to(t);
    } else {
        result = SYSCALL_ERROR;
    }
    preempt_enable();
    return result;
}

int sys_get_ticks(struct ureg *u)
{
    (void)u;
    return (int)get_ticks();
}

int sys_sleep(struct ureg *u)
{
    int duration = (int)u->esi;
    if (duration < 0)
        return SYSCALL_ERROR;
    if (duration > 0)
        sleep_until(get_ticks() + (uint32_t)duration);
    return 0;
}

int sys_misbehave(struct ureg *u)
{
    current->task->misbehave = (int)u->esi;
    return 0;
}

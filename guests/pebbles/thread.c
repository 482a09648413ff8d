/* Making and unmaking a thread's control block and kernel stack. */
#include "thread.h"

#include "../lib/string.h"
#include "heap.h"
#include "panic.h"
#include "preempt.h"
#include "x86.h"

void thread_start(void);

static int new_tid(void)
{
    static int last_tid;
#ifdef FAULT_TID_GIVEN_TWICE
    int tid = *(volatile int *)&last_tid + 1;
    last_tid = tid;
#else
    preempt_disable();
    int tid = ++last_tid;
    preempt_enable();
#endif
    return tid;
}

struct thread *thread_create(struct task *task, const struct ureg *registers)
{
    struct thread *t = malloc(sizeof *t);
    void *stack = malloc(KERNEL_STACK_SIZE);
    if (!t || !stack) {
        free(t);
        free(stack);
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->tid = task ? new_tid() : 0; /* the idle thread has no number that could be given away */
    t->state = THREAD_RUNNABLE;
    t->task = task;
    t->kernel_stack = stack;
    list_init(&t->run_link);
    list_init(&t->task_link);
    list_init(&t->all_link);

    struct ureg *frame = (struct ureg *)((char *)stack + KERNEL_STACK_SIZE) - 1;
    *frame = *registers;
    uint32_t *top = (uint32_t *)frame;
    *--top = (uint32_t)thread_start;
    *--top = 0; /* ebp: the end of the chain of frames */
    top -= 3;   /* ebx, esi, edi */
    *--top = EFLAGS_RESERVED;
    t->stack_pointer = top;
    return t;
}

void thread_free(struct thread *t)
{
    assert(t->wait_next == NULL);
    assert(list_empty(&t->run_link) && list_empty(&t->task_link) && list_empty(&t->all_link));
    free(t->kernel_stack);
    free(t);
}

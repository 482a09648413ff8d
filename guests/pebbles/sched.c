/*
 * The scheduler: round robin over one run queue.
 *
 * Four designs are chosen when the kernel is built:
 *   DESIGN_CURRENT_ON_QUEUE  the running thread stays on the run queue; otherwise it is taken off while it runs;
 *   DESIGN_IDLE_LOOP         with nothing to run, the processor waits on the stack of the last thread; otherwise a thread of
 *                            its own does that, in the kernel;
 *   DESIGN_IDLE_USER         that thread runs the program `idle` in user space, until a tick finds somebody to run;
 *   DESIGN_CHILD_FIRST       a new thread runs at once; otherwise it goes to the end of the queue.
 *
 * A thread cannot free the stack it runs on. It leaves itself in `corpse`, and whoever runs next buries it.
 */
#include "console.h"
#include "loader.h"
#include "machine.h"
#include "panic.h"
#include "preempt.h"
#include "task.h"
#include "thread.h"
#include "vm.h"
#include "x86.h"

struct thread *current;
struct thread *idle_thread;
volatile bool idling;

static struct list run_queue = LIST_INIT(run_queue);
static struct list all_threads = LIST_INIT(all_threads);
static struct thread *corpse;

#ifdef FAULT_UNPROTECTED_RUN_QUEUE
#define ASSERT_PROTECTED() (void)0
#else
#define ASSERT_PROTECTED() assert(preempt_depth > 0)
#endif

void context_switch(uint32_t **save, uint32_t *next);
void idle(void) __attribute__((noinline));

static struct thread *runq_first(void)
{
    return list_empty(&run_queue) ? NULL : list_entry(run_queue.next, struct thread, run_link);
}

__attribute__((noinline)) void runq_add(struct thread *t)
{
    ASSERT_PROTECTED();
    assert(t->state == THREAD_RUNNABLE);
    list_add(&run_queue, &t->run_link);
}

__attribute__((noinline)) void runq_remove(struct thread *t)
{
    ASSERT_PROTECTED();
    assert(!list_empty(&t->run_link));
    list_remove(&t->run_link);
}

/* What must happen once the previous thread is off its stack. */
static void finish_switch(void)
{
    if (corpse) {
        struct thread *dead = corpse;
        corpse = NULL;
        assert(dead != current);
        thread_free(dead);
    }
}

static __attribute__((noinline)) void switch_to(struct thread *next)
{
    struct thread *previous = current;
    assert(preempt_depth == 1);
    assert(next->state == THREAD_RUNNABLE);
    if (next == previous)
        return;
    bool were_on = interrupts_were_on;
    current = next;
    segments_set_kernel_stack((char *)next->kernel_stack + KERNEL_STACK_SIZE);
    vm_activate(next->task ? next->task->directory : kernel_directory);
    context_switch(&previous->stack_pointer, next->stack_pointer);
    interrupts_were_on = were_on;
    finish_switch();
}

/* The first kernel function of a new thread, on its way to user mode. */
void thread_begin(void)
{
    finish_switch();
    interrupts_were_on = false; /* the return to user mode turns them on */
    preempt_enable();
}

/* Waits for an interrupt, if nothing is runnable. The check and `hlt` are one step: `sti` takes effect after `hlt` began. */
void idle(void)
{
    disable_interrupts();
    if (list_empty(&run_queue)) {
        idling = true;
        asm volatile("sti; hlt" : : : "memory");
        disable_interrupts();
        idling = false;
    }
}

#ifdef DESIGN_IDLE_LOOP

static struct thread *next_thread(void)
{
    bool on = interrupts_enabled();
    while (!runq_first())
        idle();
    if (on)
        enable_interrupts();
    return runq_first();
}

#else

static struct thread *next_thread(void)
{
    struct thread *first = runq_first();
    return first ? first : idle_thread;
}

#endif

#ifdef DESIGN_CURRENT_ON_QUEUE

static void requeue_current(void)
{
    if (current->state == THREAD_RUNNABLE && current != idle_thread) {
        runq_remove(current);
        runq_add(current);
    }
}

static void check_out(struct thread *t)
{
    (void)t;
}

#else

static void requeue_current(void)
{
    if (current->state == THREAD_RUNNABLE && current != idle_thread)
        runq_add(current);
}

static void check_out(struct thread *t)
{
    if (t != idle_thread)
        runq_remove(t);
}

#endif

void schedule(void)
{
    requeue_current();
    struct thread *next = next_thread();
    check_out(next);
    switch_to(next);
}

void schedule_to(struct thread *t)
{
    if (t == current)
        return;
    requeue_current();
    check_out(t);
    switch_to(t);
}

void yield(void)
{
    preempt_disable();
    schedule();
    preempt_enable();
}

void block(enum thread_state state)
{
    assert(current->state == THREAD_RUNNABLE);
    current->state = state;
#ifdef DESIGN_CURRENT_ON_QUEUE
    runq_remove(current);
#endif
    schedule();
}

void unblock(struct thread *t)
{
    assert(t->state != THREAD_RUNNABLE && t->state != THREAD_DEAD);
    t->state = THREAD_RUNNABLE;
    runq_add(t);
}

#ifdef DESIGN_IDLE_USER

/* A thread like any other, except that it is in no queue and nobody finds it by its number. */
static void idle_thread_init(void)
{
    static const struct args args = {.count = 1, .size = sizeof "idle", .strings = "idle"};
    struct ureg registers;
    uint32_t *directory = load_program("idle", &args, &registers);
    struct task *task = directory ? task_create(directory) : NULL;
    idle_thread = task ? thread_create(NULL, &registers) : NULL;
    if (!idle_thread)
        panic("cannot start idle");
    idle_thread->task = task;
}

#elif !defined(DESIGN_IDLE_LOOP)

static void idle_loop(void)
{
    finish_switch();
    for (;;) {
        /* Here preempt_depth is 1, and `idling` tells the handlers that waking threads is all right. */
        idle();
        schedule();
    }
}

static void idle_thread_init(void)
{
    static struct thread idle_thread_itself = {.tid = 0};
    static uint32_t stack[KERNEL_STACK_SIZE / sizeof(uint32_t)];
    uint32_t *top = stack + KERNEL_STACK_SIZE / sizeof(uint32_t);
    *--top = 0; /* idle_loop never returns */
    *--top = (uint32_t)idle_loop;
    top -= 4; /* ebp, ebx, esi, edi */
    *--top = EFLAGS_RESERVED;
    idle_thread = &idle_thread_itself;
    idle_thread->kernel_stack = stack;
    idle_thread->stack_pointer = top;
    list_init(&idle_thread->run_link);
}
#endif

/* Leaves the stack of the boot loader for good. */
void sched_start(void)
{
    static struct thread boot = {.tid = -1, .state = THREAD_DEAD};
#ifndef DESIGN_IDLE_LOOP
    idle_thread_init();
#endif
    current = &boot;
    preempt_disable();
    schedule();
    panic("back in the boot loader's thread");
}

struct thread *thread_find(int tid)
{
    list_for_each(link, &all_threads) {
        struct thread *t = list_entry(link, struct thread, all_link);
        if (t->tid == tid)
            return t;
    }
    return NULL;
}

void thread_launch(struct thread *t, bool run_at_once)
{
#ifdef DESIGN_CHILD_FIRST
    run_at_once = true;
#endif
#ifdef FAULT_TID_GIVEN_TWICE
    preempt_disable();
    bool taken = thread_find(t->tid);
    preempt_enable();
    if (taken)
        console_printf("WARNING: a second thread %d\n", t->tid);
#endif
    preempt_disable();
    list_add(&all_threads, &t->all_link);
    list_add(&t->task->threads, &t->task_link);
#ifdef FAULT_UNPROTECTED_RUN_QUEUE
    preempt_enable();
    runq_add(t);
    preempt_disable();
#else
    runq_add(t);
#endif
    if (run_at_once && current)
        schedule_to(t);
    preempt_enable();
}

/* The caller has already left its task. Never returns: the next thread frees this one. */
void thread_die(void)
{
    list_remove(&current->all_link);
    corpse = current;
#ifdef FAULT_STACK_FREED_EARLY
    preempt_enable();
    preempt_disable();
#endif
    block(THREAD_DEAD);
    panic("a dead thread runs");
}

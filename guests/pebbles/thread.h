/*
 * Threads, and how one of them gets the processor.
 *
 * Contract: everything declared between PREEMPTION OFF and the end is called with preemption disabled; `current`, the run
 * queue, thread states and wait queues change only then.
 */
#ifndef THREAD_H
#define THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "../lib/ureg.h"
#include "list.h"

struct task;

enum thread_state {
    THREAD_RUNNABLE,    /* running, or waiting on the run queue for its turn */
    THREAD_LOCKING,     /* in the queue of a mutex */
    THREAD_WAITING,     /* in the queue of a condition variable */
    THREAD_SLEEPING,    /* until the clock shows wake_at */
    THREAD_DESCHEDULED, /* until another thread calls make_runnable */
    THREAD_DEAD,
};

/* Threads that wait for the same thing, first come first served. A thread waits in one queue at a time. */
struct waitq {
    struct thread *first, *last;
};

struct thread {
    int tid;
    enum thread_state state;
    struct task *task; /* NULL for an idle thread in the kernel */

    void *kernel_stack;
    uint32_t *stack_pointer; /* while it does not run */

    struct list run_link;  /* on the run queue */
    struct list task_link; /* among the threads of its task */
    struct list all_link;  /* among all threads */

    struct thread *wait_next; /* in a wait queue */
    struct waitq *waiting_on; /* the queue, while THREAD_WAITING or THREAD_SLEEPING */
    uint32_t wake_at;

    /* Software exception handler, if handler_eip is not 0. */
    uint32_t handler_esp, handler_eip, handler_arg;
};

enum { KERNEL_STACK_SIZE = 8192 };

extern struct thread *current;
extern volatile bool idling; /* the processor waits for an interrupt; handlers may wake threads, not switch to them */

/* A new thread that will return to user mode with these registers; not yet visible to anyone. NULL if memory is short. */
struct thread *thread_create(struct task *task, const struct ureg *registers);
void thread_free(struct thread *t);

void sched_start(void) __attribute__((noreturn)); /* once, when the first thread has been launched */
void yield(void);

/* Makes a new thread known to all and runnable; from here on it may run, and end, at any time. */
void thread_launch(struct thread *t, bool run_at_once);

/* PREEMPTION OFF from here on. */

extern struct thread *idle_thread;

struct thread *thread_find(int tid);

void runq_add(struct thread *t);
void runq_remove(struct thread *t);

void schedule(void);                 /* let the next runnable thread run */
void schedule_to(struct thread *t);  /* let that runnable thread run */
void block(enum thread_state state); /* let others run until unblock() */
void unblock(struct thread *t);

void waitq_add(struct waitq *q, struct thread *t);
struct thread *waitq_take(struct waitq *q); /* the first one, or NULL */
void waitq_remove(struct waitq *q, struct thread *t);

/* Waits in a queue, in a way that thread_interrupt can cut short; returns at once if the task is being killed. */
void block_on(struct waitq *q, enum thread_state state);
void thread_interrupt(struct thread *t);

void thread_die(void) __attribute__((noreturn));

#endif

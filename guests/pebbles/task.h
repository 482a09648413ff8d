/*
 * Tasks: an address space, the threads in it, and a place in the family tree.
 *
 * `threads` and `dying` are guarded by disabling preemption, the address space by vm_lock, and the family fields of all
 * tasks together by one mutex in family.c.
 */
#ifndef TASK_H
#define TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "sync.h"

/* The three faulty ways to lock the family tree task by task; see family_faults.c. */
#if defined(FAULT_VANISH_CIRCULAR) || defined(FAULT_VANISH_UNLOCKED) || defined(FAULT_VANISH_EARLY_UNLOCK)
#define FAMILY_LOCKS
#endif

enum { MISBEHAVE_CHILD_FIRST = 1, MISBEHAVE_WOKEN_FIRST = 2 };

struct task {
    int tid; /* of its first thread; what wait() returns */
    int status;
    struct list threads;
    bool dying; /* every thread leaves when it next would return to user mode */
    int misbehave; /* MISBEHAVE_ bits: how threads of this task are scheduled */
#ifdef FAULT_THREAD_COUNT_TORN
    int others; /* threads besides the first one */
#endif

    struct mutex vm_lock;
    uint32_t *directory;

    struct task *parent;
    struct list sibling; /* in the parent's children, later in its zombies */
    struct list children;
    struct list zombies;
    int live; /* number of children */
    struct cond child_exit;
#ifdef FAMILY_LOCKS
    struct mutex lock;        /* of children, zombies, live and child_exit */
    struct mutex parent_lock; /* of parent */
#endif
};

extern struct task *init_task;

struct task *task_create(uint32_t *directory);
void task_free(struct task *t);

/* family.c */
void family_join(struct task *parent, struct task *child);
struct task *family_wait(struct task *parent); /* a zombie to bury, or NULL if there will be none */
void family_leave(struct task *task);          /* returns with preemption disabled; then the task is gone */

/* exit.c */
void thread_exit(void) __attribute__((noreturn));
void task_kill(struct task *task, int status);

#endif

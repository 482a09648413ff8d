/*
 * A thread and the one that joins it meet twice. First under the lock: the status is there. Then about the stack, which the
 * joining thread frees, but not before the other has left it for good; see thr_leave.
 */
#include "thr.h"

#include <stdbool.h>
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "atomic.h"
#include "cond.h"
#include "malloc.h"

#define GONE ((void *)1)

struct thr {
    struct thr *next;
    int tid;
    void *(*function)(void *);
    void *arg;
    void *status;
    void *stack; /* NULL: the first thread, whose stack is the kernel's business */
    bool exited, joined;
    struct cond exit;
    void *volatile leaving; /* NULL, the waiter to wake, or GONE */
};

static struct mutex threads_lock = MUTEX_INIT;
static struct thr *threads;
static int stack_size;

int thr_fork(void *stack_top, struct thr *t);
void thr_begin(struct thr *t) __attribute__((noreturn));
void thr_leave(void *volatile *leaving) __attribute__((noreturn));

/* With threads_lock held. */
static struct thr *find(int tid)
{
    struct thr *t = threads;
    while (t && t->tid != tid)
        t = t->next;
    return t;
}

static void remove(struct thr *t)
{
    struct thr **link = &threads;
    while (*link && *link != t)
        link = &(*link)->next;
    if (*link)
        *link = t->next;
}

static struct thr *new_thr(void *(*function)(void *), void *arg)
{
    struct thr *t = malloc(sizeof *t);
    if (t) {
        *t = (struct thr){.function = function, .arg = arg};
        cond_init(&t->exit);
    }
    return t;
}

int thr_init(int size)
{
    stack_size = (size + 15) & ~15;
    struct thr *t = new_thr(NULL, NULL);
    if (!t || size <= 0)
        return -1;
    t->tid = gettid();
    threads = t;
    return 0;
}

int thr_create(void *(*function)(void *), void *arg)
{
    struct thr *t = new_thr(function, arg);
    char *stack = malloc((size_t)stack_size);
    if (!t || !stack) {
        free(t);
        free(stack);
        return -1;
    }
    t->stack = stack;

    /* The new thread may look for itself; it will find the lock taken until its tid is known. */
    mutex_lock(&threads_lock);
    int tid = thr_fork(stack + stack_size, t);
    if (tid > 0) {
        t->tid = tid;
        t->next = threads;
        threads = t;
    }
    mutex_unlock(&threads_lock);
    if (tid < 0) {
        free(t);
        free(stack);
    }
    return tid;
}

void thr_begin(struct thr *t)
{
    thr_exit(t->function(t->arg));
}

void thr_exit(void *status)
{
    int tid = gettid();
    mutex_lock(&threads_lock);
    struct thr *self = find(tid);
    assert(self);
    self->status = status;
    self->exited = true;
    cond_broadcast(&self->exit);
    mutex_unlock(&threads_lock);
    thr_leave(&self->leaving);
}

#ifndef FAULT_JOIN_FREES_RUNNING_STACK
static void wait_until_gone(struct thr *t)
{
    struct waiter self;
    waiter_init(&self);
    if (atomic_exchange_pointer(&t->leaving, &self) != GONE)
        waiter_wait(&self);
}
#endif

int thr_join(int tid, void **status)
{
    bool myself = tid == gettid();
    mutex_lock(&threads_lock);
    struct thr *t = find(tid);
    bool may_join = t && !t->joined && !myself;
#ifdef FAULT_DOUBLE_FREE_IN_JOIN
    mutex_unlock(&threads_lock);
    mutex_lock(&threads_lock);
#endif
    if (!may_join) {
        mutex_unlock(&threads_lock);
        return -1;
    }
    t->joined = true;
    while (!t->exited)
        cond_wait(&t->exit, &threads_lock);
    remove(t);
    mutex_unlock(&threads_lock);

#ifndef FAULT_JOIN_FREES_RUNNING_STACK
    wait_until_gone(t);
#endif
    if (status)
        *status = t->status;
    free(t->stack);
    free(t);
    return 0;
}

int thr_getid(void)
{
    return gettid();
}

int thr_yield(int tid)
{
    return yield(tid);
}

/*
 * The family tree: who waits for whom, and who inherits the orphans.
 *
 * A parent that dies hands its children to init, and a child that dies hands itself to its parent, perhaps both at once. Each
 * needs both tasks to stand still: the child must not announce itself to a parent that is already gone, and the parent must
 * not give away a child that is just announcing itself. Locking one task after the other invites either a deadlock or a gap
 * between the two. So one mutex guards the whole tree; all that is done under it is short.
 */
#include "heap.h"
#include "panic.h"
#include "preempt.h"
#include "task.h"

struct task *init_task;

struct task *task_create(uint32_t *directory)
{
    struct task *t = malloc(sizeof *t);
    if (!t)
        return NULL;
    *t = (struct task){.directory = directory};
    list_init(&t->threads);
    list_init(&t->sibling);
    list_init(&t->children);
    list_init(&t->zombies);
    return t;
}

void task_free(struct task *t)
{
    assert(list_empty(&t->threads) && list_empty(&t->children) && list_empty(&t->zombies) && t->live == 0);
    assert(!t->vm_lock.owner && !t->child_exit.waiters.first);
    free(t);
}

#ifndef FAMILY_LOCKS

static struct mutex family_lock;

void family_join(struct task *parent, struct task *child)
{
    mutex_lock(&family_lock);
    child->parent = parent;
    list_add(&parent->children, &child->sibling);
    parent->live++;
    mutex_unlock(&family_lock);
}

#ifdef FAULT_WALK_INTO_ZOMBIES
/* The lock guards the list's head; the children are linked to each other. */
static int count_children(struct task *parent)
{
    int children = 0;
    mutex_lock(&family_lock);
    struct list *link = parent->children.next;
    mutex_unlock(&family_lock);
    for (; link != &parent->children; link = link->next)
        children++;
    return children;
}
#endif

struct task *family_wait(struct task *parent)
{
    struct task *zombie = NULL;
#ifdef FAULT_WALK_INTO_ZOMBIES
    if (count_children(parent) == 0 && list_empty(&parent->zombies) && parent != init_task)
        return NULL; /* an early refusal */
#endif
    mutex_lock(&family_lock);
    while (list_empty(&parent->zombies) && parent->live > 0 && !parent->dying) {
#ifdef FAULT_WAIT_MISSES_EXIT
        mutex_unlock(&family_lock);
        mutex_lock(&family_lock);
#endif
        cond_wait(&parent->child_exit, &family_lock);
    }
    if (!list_empty(&parent->zombies)) {
        zombie = list_entry(parent->zombies.next, struct task, sibling);
        list_remove(&zombie->sibling);
    }
    assert(zombie || parent != init_task); /* init always has the shell to wait for */
    mutex_unlock(&family_lock);
    return zombie;
}

void family_leave(struct task *task)
{
    mutex_lock(&family_lock);
    while (!list_empty(&task->children)) {
        struct task *child = list_entry(task->children.next, struct task, sibling);
        list_remove(&child->sibling);
        task->live--;
        child->parent = init_task;
        list_add(&init_task->children, &child->sibling);
        init_task->live++;
    }
    if (!list_empty(&task->zombies)) {
        while (!list_empty(&task->zombies)) {
            struct list *zombie = task->zombies.next;
            list_remove(zombie);
            list_add(&init_task->zombies, zombie);
        }
        cond_broadcast(&init_task->child_exit);
    }
    struct task *parent = task->parent;
    list_remove(&task->sibling);
    parent->live--;
    list_add(&parent->zombies, &task->sibling);
    cond_broadcast(&parent->child_exit);

    /* As soon as the lock is free the parent may bury the task; so the caller must be gone before it can. */
    preempt_disable();
    mutex_unlock(&family_lock);
}

#endif

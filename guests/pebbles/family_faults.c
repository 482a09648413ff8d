/*
 * Three ways to get the family tree wrong, all with locks of each task instead of one lock for the tree. A task's `lock`
 * guards its lists of children, its `parent_lock` the pointer to its own parent. A dying parent changes the parent pointers
 * of its children; a dying child follows its parent pointer. They differ in how these two are kept apart:
 *
 *   FAULT_VANISH_CIRCULAR      each holds its own lock while it takes the other's;
 *   FAULT_VANISH_UNLOCKED      the pointer is not guarded at all;
 *   FAULT_VANISH_EARLY_UNLOCK  the parent lets go of its list before it takes the child's pointer, and puts the child into
 *                              init's list only afterwards.
 */
#include "heap.h"
#include "panic.h"
#include "preempt.h"
#include "task.h"

#ifdef FAMILY_LOCKS

#ifdef FAULT_VANISH_UNLOCKED
#define PARENT_LOCK(t) (void)(t)
#define PARENT_UNLOCK(t) (void)(t)
#else
#define PARENT_LOCK(t) mutex_lock(&(t)->parent_lock)
#define PARENT_UNLOCK(t) mutex_unlock(&(t)->parent_lock)
#endif

static void add_child(struct task *parent, struct task *child)
{
    mutex_lock(&parent->lock);
    list_add(&parent->children, &child->sibling);
    parent->live++;
    mutex_unlock(&parent->lock);
}

void family_join(struct task *parent, struct task *child)
{
    child->parent = parent;
    add_child(parent, child);
}

struct task *family_wait(struct task *parent)
{
    struct task *zombie = NULL;
    mutex_lock(&parent->lock);
    while (list_empty(&parent->zombies) && parent->live > 0 && !parent->dying)
        cond_wait(&parent->child_exit, &parent->lock);
    if (!list_empty(&parent->zombies)) {
        zombie = list_entry(parent->zombies.next, struct task, sibling);
        list_remove(&zombie->sibling);
    }
    assert(zombie || parent != init_task); /* init always has the shell to wait for */
    mutex_unlock(&parent->lock);
    return zombie;
}

/* With task->lock held. */
static void give_away_child(struct task *task, struct task *child)
{
    list_remove(&child->sibling);
    task->live--;
#ifdef FAULT_VANISH_EARLY_UNLOCK
    mutex_unlock(&task->lock); /* "never hold two locks" */
    PARENT_LOCK(child);
    child->parent = init_task;
    PARENT_UNLOCK(child);
    add_child(init_task, child);
    mutex_lock(&task->lock);
#else
    PARENT_LOCK(child);
    child->parent = init_task;
    add_child(init_task, child);
    PARENT_UNLOCK(child);
#endif
}

static void give_away_family(struct task *task)
{
    mutex_lock(&task->lock);
    while (!list_empty(&task->children))
        give_away_child(task, list_entry(task->children.next, struct task, sibling));
    if (!list_empty(&task->zombies)) {
        mutex_lock(&init_task->lock);
        while (!list_empty(&task->zombies)) {
            struct list *zombie = task->zombies.next;
            list_remove(zombie);
            list_add(&init_task->zombies, zombie);
        }
        cond_broadcast(&init_task->child_exit);
        mutex_unlock(&init_task->lock);
    }
    mutex_unlock(&task->lock);
}

void family_leave(struct task *task)
{
    give_away_family(task);
    PARENT_LOCK(task);
    struct task *parent = task->parent;
    mutex_lock(&parent->lock);
    list_remove(&task->sibling);
    parent->live--;
    list_add(&parent->zombies, &task->sibling);
    cond_broadcast(&parent->child_exit);
    preempt_disable();
    mutex_unlock(&parent->lock);
    PARENT_UNLOCK(task);
}

#endif

/* Life: fork, thread_fork, exec, wait, vanish and what belongs to them. */
#include "../lib/string.h"
#include "heap.h"
#include "loader.h"
#include "preempt.h"
#include "syscall.h"
#include "task.h"
#include "vm.h"
#include "x86.h"

enum { NAME_SIZE_MAX = 64 };

int sys_fork(struct ureg *u)
{
    struct task *task = current->task;
    mutex_lock(&task->vm_lock);
    uint32_t *directory = vm_copy(task->directory);
    mutex_unlock(&task->vm_lock);
    if (!directory)
        return SYSCALL_ERROR;

    struct ureg registers = *u;
    registers.eax = 0;
    struct task *child = task_create(directory);
    struct thread *thread = child ? thread_create(child, &registers) : NULL;
    if (!thread) {
        if (child)
            task_free(child);
        vm_free(directory);
        return SYSCALL_ERROR;
    }
    thread->handler_esp = current->handler_esp;
    thread->handler_eip = current->handler_eip;
    thread->handler_arg = current->handler_arg;
    int tid = child->tid = thread->tid;
    family_join(task, child);
    thread_launch(thread, task->misbehave & MISBEHAVE_CHILD_FIRST);
    return tid;
}

int sys_thread_fork(struct ureg *u)
{
    struct ureg registers = *u;
    registers.eax = 0;
    struct thread *thread = thread_create(current->task, &registers);
    if (!thread)
        return SYSCALL_ERROR;
    int tid = thread->tid;
#ifdef FAULT_THREAD_COUNT_TORN
    int others = current->task->others;
#endif
    thread_launch(thread, current->task->misbehave & MISBEHAVE_CHILD_FIRST);
#ifdef FAULT_THREAD_COUNT_TORN
    current->task->others = others + 1;
#endif
#ifdef FAULT_THREAD_FORK_VANISH
    tid = thread->tid;
#endif
    return tid;
}

/* Copies the strings of a NULL-ended array of user pointers. */
static bool get_exec_args(struct args *args, uint32_t array)
{
    args->count = args->size = 0;
    for (;; array += sizeof(uint32_t)) {
        uint32_t string;
        if (!copy_from_user(&string, array, sizeof string))
            return false;
        if (!string)
            return true;
        int length = copy_string_from_user(args->strings + args->size, string, ARGS_SIZE_MAX - (size_t)args->size);
        if (length < 0 || args->count == ARGS_MAX)
            return false;
        args->count++;
        args->size += length + 1;
    }
}

int sys_exec(struct ureg *u)
{
    struct task *task = current->task;
    uint32_t packet[2];
    char name[NAME_SIZE_MAX];
    preempt_disable();
    bool alone = task->threads.next->next == &task->threads;
    preempt_enable();
    if (!alone)
        return SYSCALL_ERROR; /* the other threads would lose the ground under their feet */
    struct args *args = malloc(sizeof *args);
    if (!args)
        return SYSCALL_ERROR;
    struct ureg registers;
    uint32_t *directory = NULL;
    if (get_args(u, packet, 2) && copy_string_from_user(name, packet[0], sizeof name) >= 0 &&
        get_exec_args(args, packet[1]))
        directory = load_program(name, args, &registers);
    free(args);
    if (!directory)
        return SYSCALL_ERROR;

    uint32_t *old = task->directory;
    task->directory = directory;
    vm_activate(directory);
    vm_free(old);
    current->handler_eip = 0;
    *u = registers;
    return (int)u->eax;
}

int sys_set_status(struct ureg *u)
{
    current->task->status = (int)u->esi;
    return 0;
}

int sys_vanish(struct ureg *u)
{
    (void)u;
    thread_exit();
}

int sys_task_vanish(struct ureg *u)
{
    task_kill(current->task, (int)u->esi);
    thread_exit();
}

int sys_wait(struct ureg *u)
{
    uint32_t status_at = u->esi;
    if (status_at && !user_can_write(status_at, sizeof(int)))
        return SYSCALL_ERROR;
    struct task *zombie = family_wait(current->task);
    if (!zombie)
        return SYSCALL_ERROR;
    int tid = zombie->tid, status = zombie->status;
    task_free(zombie);
    /* If another thread has just removed that page, the status is lost, as it deserves. */
    if (status_at)
        copy_to_user(status_at, &status, sizeof status);
    return tid;
}

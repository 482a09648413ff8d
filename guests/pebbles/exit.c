/* The end of threads and tasks. */
#include "panic.h"
#include "preempt.h"
#include "task.h"
#include "thread.h"
#include "vm.h"

/*
 * Ends the current thread. Leaving the task and leaving the processor are one step: a thread that had left the task but
 * still ran would use an address space that the last thread is taking apart.
 */
void thread_exit(void)
{
    struct task *task = current->task;
    assert(task != init_task);
#ifdef FAULT_THREAD_COUNT_TORN
    /* The first thread waits for the others, so that it is always the last one that clears up. */
    if (current->tid != task->tid)
        task->others--;
    while (current->tid == task->tid && task->others > 0)
        yield();
#endif
    preempt_disable();
    list_remove(&current->task_link);
    if (!list_empty(&task->threads))
        thread_die();
    preempt_enable();

    /* The last one clears up. */
    uint32_t *directory = task->directory;
#ifdef FAULT_DIRECTORY_FREED_EARLY
    vm_free(directory);
    mutex_lock(&task->vm_lock);
    task->directory = kernel_directory;
    mutex_unlock(&task->vm_lock);
    vm_activate(kernel_directory);
#else
    task->directory = kernel_directory;
    vm_activate(kernel_directory);
    vm_free(directory);
#endif
    family_leave(task);
    thread_die();
}

void task_kill(struct task *task, int status)
{
    preempt_disable();
    task->status = status;
    task->dying = true;
    list_for_each(link, &task->threads)
        thread_interrupt(list_entry(link, struct thread, task_link));
    preempt_enable();
}

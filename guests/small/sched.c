/* Locks, to sleep and to be woken, and the loop that chooses who is next. */
#include "small.h"

struct process processes[PROCESSES];
struct process *current;
struct spin_lock table;
static uint32_t *scheduler_stack_pointer;

void acquire(struct spin_lock *lock)
{
    interrupts_off();
    if (lock->held)
        panic("a spin lock is taken twice");
    lock->held = 1;
}

void release(struct spin_lock *lock)
{
    lock->held = 0;
    interrupts_back();
}

/* Saves the registers that a callee keeps, and goes on where `next` was saved. */
void swtch(uint32_t **save, uint32_t *next);
__asm__(".text\n"
        ".globl swtch\n"
        ".type swtch, @function\n"
        "swtch:\n"
        "  movl 4(%esp), %eax\n"
        "  movl 8(%esp), %edx\n"
        "  pushl %ebp\n"
        "  pushl %ebx\n"
        "  pushl %esi\n"
        "  pushl %edi\n"
        "  movl %esp, (%eax)\n"
        "  movl %edx, %esp\n"
        "  popl %edi\n"
        "  popl %esi\n"
        "  popl %ebx\n"
        "  popl %ebp\n"
        "  ret\n"
        ".size swtch, . - swtch\n");

void sched(void)
{
    int on = interrupts_were_on;
    swtch(&current->stack_pointer, scheduler_stack_pointer);
    interrupts_were_on = on;
}

void yield(void)
{
    acquire(&table);
    current->state = RUNNABLE;
    sched();
    release(&table);
}

void sleep(const void *reason, struct spin_lock *lock)
{
    if (lock != &table) {
        acquire(&table);
        release(lock);
    }
    current->waits_for = reason;
    current->state = SLEEPING;
    sched();
    if (lock != &table) {
        release(&table);
        acquire(lock);
    }
}

void wake_locked(const void *reason)
{
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].state == SLEEPING && processes[i].waits_for == reason)
            processes[i].state = RUNNABLE;
}

void wake(const void *reason)
{
    acquire(&table);
    wake_locked(reason);
    release(&table);
}

void acquire_sleep(struct sleep_lock *lock)
{
    acquire(&lock->lock);
#ifdef FAULT_ONE_LOOK
    if (lock->held)
#else
    while (lock->held)
#endif
        sleep(lock, &lock->lock);
    lock->held = 1;
    lock->owner = current->id;
    release(&lock->lock);
}

void release_sleep(struct sleep_lock *lock)
{
    acquire(&lock->lock);
    if (!lock->held || lock->owner != current->id)
        panic("a lock is released that somebody else has");
    lock->held = 0;
    wake(lock);
    release(&lock->lock);
}

void scheduler(void)
{
    for (;;) {
        __asm__ volatile("sti");
        acquire(&table);
        for (int i = 0; i < PROCESSES; i++) {
            if (processes[i].state != RUNNABLE)
                continue;
            enter_process(&processes[i]);
            current->state = RUNNING;
            swtch(&scheduler_stack_pointer, current->stack_pointer);
            current = 0;
        }
        release(&table);
    }
}

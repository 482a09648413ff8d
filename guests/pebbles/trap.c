/* Where every trap arrives: device interrupts, system calls, and programs (or ourselves) doing what cannot be done. */
#include "trap.h"

#include "../lib/syscall_int.h"
#include "console.h"
#include "machine.h"
#include "panic.h"
#include "task.h"
#include "user.h"
#include "x86.h"

enum { GATE_INTERRUPT = 0x8e00, GATE_TRAP = 0x8f00, GATE_USER = 0x6000 };

enum { STATUS_KILLED = -2 };

extern const struct vector {
    uint32_t number, address;
} vectors[], vectors_end[];

static uint32_t idt[256][2];

/*
 * System calls begin with interrupts as they were. Device interrupts begin with interrupts off; so do faults, lest another
 * thread's page fault overwrite %cr2 before it has been read.
 */
void traps_init(void)
{
    for (const struct vector *v = vectors; v < vectors_end; v++) {
        bool for_users = v->number >= FORK_INT || v->number == TRAP_BREAKPOINT || v->number == TRAP_OVERFLOW;
        uint32_t type = v->number >= FORK_INT ? GATE_TRAP : GATE_INTERRUPT;
        idt[v->number][0] = KERNEL_CS << 16 | (v->address & 0xffff);
        idt[v->number][1] = (v->address & 0xffff0000) | type | (for_users ? GATE_USER : 0);
    }
    struct {
        uint16_t limit;
        uint32_t base;
    } __attribute__((packed)) idtr = {sizeof idt - 1, (uint32_t)idt};
    asm volatile("lidt %0" : : "m"(idtr) : "memory");
}

static void fault(struct ureg *u, bool from_user)
{
    if (!from_user) {
        uint32_t resume = u->cause == TRAP_PAGE ? user_copy_failure(u->eip) : 0;
        if (!resume)
            panic("fault %u in the kernel at %p, error %x, address %p", u->cause, (void *)u->eip, u->error_code,
                  (void *)u->cr2);
        u->eip = resume;
        return;
    }
    enable_interrupts();
    if (swexn_deliver(u))
        return;
    if (u->cause == TRAP_PAGE)
        console_printf("thread %d: page fault at %p, address %p\n", current->tid, (void *)u->eip, (void *)u->cr2);
    else
        console_printf("thread %d: fault %u at %p\n", current->tid, u->cause, (void *)u->eip);
    task_kill(current->task, STATUS_KILLED);
}

void trap(struct ureg *u)
{
    bool from_user = u->cs == USER_CS;
    switch (u->cause) {
    case IRQ_VECTOR + IRQ_TIMER:
        irq_acknowledge();
        timer_interrupt();
        break;
    case IRQ_VECTOR + IRQ_KEYBOARD:
        irq_acknowledge();
        keyboard_interrupt();
        break;
    case IRQ_VECTOR + IRQ_SERIAL:
        irq_acknowledge();
        serial_interrupt();
        break;
    case IRQ_VECTOR + 7: /* the controller's way to say: never mind */
        break;
    default:
        if (u->cause >= FORK_INT)
            u->eax = (uint32_t)syscall(u);
        else
            fault(u, from_user);
    }
    if (from_user && current->task->dying) {
        enable_interrupts();
        thread_exit();
    }
}

/* Software exceptions: a thread's own handler for its faults, and its way to set all its registers. */
#include "panic.h"
#include "syscall.h"
#include "task.h"
#include "trap.h"
#include "x86.h"

/* What the handler finds on its stack: a return address that leads nowhere, its two arguments, and the registers. */
struct handler_frame {
    uint32_t return_address, arg, registers_at;
    struct ureg registers;
};

bool swexn_deliver(struct ureg *u)
{
    if (!current->handler_eip)
        return false;
    uint32_t at = (current->handler_esp - sizeof(struct handler_frame)) & ~3u;
    struct handler_frame frame = {
        .arg = current->handler_arg,
        .registers_at = at + offsetof(struct handler_frame, registers),
        .registers = *u,
    };
    uint32_t eip = current->handler_eip;
    current->handler_eip = 0;
    if (!copy_to_user(at, &frame, sizeof frame))
        return false;
    u->eip = eip;
    u->esp = at;
    u->eflags &= ~0x500u; /* no single steps, strings forward */
    return true;
}

/* Would these registers leave the program in user mode, interruptible? */
static bool sane(const struct ureg *u)
{
    uint32_t changed = (u->eflags ^ (EFLAGS_RESERVED | EFLAGS_IF)) & ~EFLAGS_USER_MAY_SET;
    return u->cs == USER_CS && u->ss == USER_DS && u->ds == USER_DS && u->es == USER_DS &&
           (u->fs == USER_DS || u->fs == 0) && (u->gs == USER_DS || u->gs == 0) && changed == 0;
}

int sys_swexn(struct ureg *u)
{
    uint32_t packet[4];
    struct ureg registers;
    if (!get_args(u, packet, 4))
        return SYSCALL_ERROR;
    if (packet[3] && !(copy_from_user(&registers, packet[3], sizeof registers) && sane(&registers)))
        return SYSCALL_ERROR;
    current->handler_esp = packet[0];
    current->handler_eip = packet[0] ? packet[1] : 0;
    current->handler_arg = packet[2];
    if (!packet[3])
        return 0;
    *u = registers;
    return (int)u->eax;
}

/* The system calls, each with the registers it was called with; see lib/syscall_int.h for how arguments travel. */
#ifndef SYSCALL_H
#define SYSCALL_H

#include "../lib/ureg.h"
#include "user.h"

int sys_fork(struct ureg *u);
int sys_thread_fork(struct ureg *u);
int sys_exec(struct ureg *u);
int sys_set_status(struct ureg *u);
int sys_vanish(struct ureg *u);
int sys_wait(struct ureg *u);
int sys_task_vanish(struct ureg *u);

int sys_gettid(struct ureg *u);
int sys_yield(struct ureg *u);
int sys_deschedule(struct ureg *u);
int sys_make_runnable(struct ureg *u);
int sys_get_ticks(struct ureg *u);
int sys_sleep(struct ureg *u);
int sys_misbehave(struct ureg *u);

int sys_swexn(struct ureg *u);

int sys_new_pages(struct ureg *u);
int sys_remove_pages(struct ureg *u);

int sys_getchar(struct ureg *u);
int sys_readline(struct ureg *u);
int sys_print(struct ureg *u);
int sys_set_term_color(struct ureg *u);
int sys_set_cursor_pos(struct ureg *u);
int sys_get_cursor_pos(struct ureg *u);

int sys_create(struct ureg *u);
int sys_remove(struct ureg *u);
int sys_readdir(struct ureg *u);

int sys_ls(struct ureg *u);
int sys_halt(struct ureg *u);

enum { SYSCALL_ERROR = -1 };

static inline bool get_args(const struct ureg *u, uint32_t *args, int count)
{
    return copy_from_user(args, u->esi, (size_t)count * sizeof *args);
}

#endif

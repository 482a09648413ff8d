#include "syscall.h"

#include "../lib/syscall_int.h"
#include "panic.h"
#include "trap.h"

static int (*const calls[])(struct ureg *) = {
    [FORK_INT] = sys_fork,
    [EXEC_INT] = sys_exec,
    [WAIT_INT] = sys_wait,
    [YIELD_INT] = sys_yield,
    [DESCHEDULE_INT] = sys_deschedule,
    [MAKE_RUNNABLE_INT] = sys_make_runnable,
    [GETTID_INT] = sys_gettid,
    [NEW_PAGES_INT] = sys_new_pages,
    [REMOVE_PAGES_INT] = sys_remove_pages,
    [SLEEP_INT] = sys_sleep,
    [GETCHAR_INT] = sys_getchar,
    [READLINE_INT] = sys_readline,
    [PRINT_INT] = sys_print,
    [SET_TERM_COLOR_INT] = sys_set_term_color,
    [SET_CURSOR_POS_INT] = sys_set_cursor_pos,
    [GET_CURSOR_POS_INT] = sys_get_cursor_pos,
    [THREAD_FORK_INT] = sys_thread_fork,
    [GET_TICKS_INT] = sys_get_ticks,
    [MISBEHAVE_INT] = sys_misbehave,
    [HALT_INT] = sys_halt,
    [LS_INT] = sys_ls,
    [TASK_VANISH_INT] = sys_task_vanish,
    [SET_STATUS_INT] = sys_set_status,
    [VANISH_INT] = sys_vanish,
    [SWEXN_INT] = sys_swexn,
    [CREATE_INT] = sys_create,
    [REMOVE_INT] = sys_remove,
    [READDIR_INT] = sys_readdir,
};

int syscall(struct ureg *u)
{
    assert(u->cause < sizeof calls / sizeof calls[0] && calls[u->cause]); /* no other gate is open to programs */
    return calls[u->cause](u);
}

/* The system calls as C functions. thread_fork is absent: its child would return on its parent's stack; see thr_fork. */
#include "../lib/syscall_int.h"

        .cfi_sections .debug_frame

        .macro  enter name
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        pushl   %esi
        .cfi_adjust_cfa_offset 4
        .cfi_rel_offset esi, 0
        .endm

        .macro  leave name, number
        int     $\number
        popl    %esi
        .cfi_adjust_cfa_offset -4
        .cfi_restore esi
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        /* No argument, or one. */
        .macro  single name, number
        .section .text.\name, "ax"
        enter   \name
        movl    8(%esp), %esi
        leave   \name, \number
        .endm

        /* Several: they lie side by side on the stack already. */
        .macro  several name, number
        .section .text.\name, "ax"
        enter   \name
        leal    8(%esp), %esi
        leave   \name, \number
        .endm

        single  fork, FORK_INT
        several exec, EXEC_INT
        single  set_status, SET_STATUS_INT
        single  vanish, VANISH_INT
        single  wait, WAIT_INT
        single  task_vanish, TASK_VANISH_INT
        single  gettid, GETTID_INT
        single  yield, YIELD_INT
        single  deschedule, DESCHEDULE_INT
        single  make_runnable, MAKE_RUNNABLE_INT
        single  get_ticks, GET_TICKS_INT
        single  sleep, SLEEP_INT
        several swexn, SWEXN_INT
        several new_pages, NEW_PAGES_INT
        single  remove_pages, REMOVE_PAGES_INT
        single  getchar, GETCHAR_INT
        several readline, READLINE_INT
        several print, PRINT_INT
        single  set_term_color, SET_TERM_COLOR_INT
        several set_cursor_pos, SET_CURSOR_POS_INT
        several get_cursor_pos, GET_CURSOR_POS_INT
        several ls, LS_INT
        single  halt, HALT_INT
        single  misbehave, MISBEHAVE_INT
        single  create, CREATE_INT
        single  unlink, REMOVE_INT
        several readdir, READDIR_INT

        .section .note.GNU-stack, "", @progbits

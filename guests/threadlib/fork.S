/* The two places where a thread must not touch the stack: its beginning and its end. */
#include "../lib/syscall_int.h"

#define WAITER_TID 4
#define WAITER_WOKEN 8

        .cfi_sections .debug_frame

/* int thr_fork(void *stack_top, struct thr *thr): the new thread runs thr_begin(thr) on its own stack. */
        .section .text.thr_fork, "ax"
        .globl  thr_fork
        .type   thr_fork, @function
thr_fork:
        .cfi_startproc
        movl    4(%esp), %ecx
        movl    8(%esp), %edx
        int     $THREAD_FORK_INT
        testl   %eax, %eax
        jz      1f
        ret
1:      .cfi_undefined eip
        movl    %ecx, %esp
        xorl    %ebp, %ebp
        pushl   %edx
        call    thr_begin
        .cfi_endproc
        .size   thr_fork, . - thr_fork

/*
 * void thr_leave(void **leaving): the end of a thread whose stack another is to free. The exchange says "I am gone" and
 * learns who waits for that; from then on only registers are used.
 */
        .section .text.thr_leave, "ax"
        .globl  thr_leave
        .type   thr_leave, @function
thr_leave:
        .cfi_startproc
        movl    4(%esp), %edx
        movl    $1, %eax
        xchgl   %eax, (%edx)
        testl   %eax, %eax
        jz      1f
        movl    WAITER_TID(%eax), %esi
        movl    $1, WAITER_WOKEN(%eax)
        int     $MAKE_RUNNABLE_INT
1:      int     $VANISH_INT
        .cfi_endproc
        .size   thr_leave, . - thr_leave

        .section .note.GNU-stack, "", @progbits

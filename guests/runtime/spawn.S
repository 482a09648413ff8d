#include "../lib/syscall_int.h"

        .cfi_sections .debug_frame
        .section .text.spawn, "ax"
        .globl  spawn
        .type   spawn, @function
spawn:
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
        call    *%edx
        .cfi_endproc
        .size   spawn, . - spawn

        .section .note.GNU-stack, "", @progbits

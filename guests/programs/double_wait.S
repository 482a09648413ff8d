/* Two threads of a task wait for its only child. */
#include "../lib/syscall_int.h"
        .globl  main
        .type   main, @function
main:
        int     $FORK_INT
        testl   %eax, %eax
        jz      child
        int     $THREAD_FORK_INT
        xorl    %esi, %esi
        int     $WAIT_INT
child:
        int     $VANISH_INT
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits

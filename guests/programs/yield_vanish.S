/* A thread yields to another that is about to vanish. */
#include "../lib/syscall_int.h"
        .globl  main
        .type   main, @function
main:
        int     $THREAD_FORK_INT
        testl   %eax, %eax
        jz      vanish_now
        movl    %eax, %esi
        int     $YIELD_INT
vanish_now:
        int     $VANISH_INT
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits

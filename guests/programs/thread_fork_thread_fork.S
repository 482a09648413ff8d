/* Two threads make one thread each; then all four vanish. */
#include "../lib/syscall_int.h"
        .globl  main
        .type   main, @function
main:
        int     $THREAD_FORK_INT
        int     $THREAD_FORK_INT
        int     $VANISH_INT
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits

/* A thread makes a second one while the thread that made it vanishes; then they vanish too. */
#include "../lib/syscall_int.h"
        .globl  main
        .type   main, @function
main:
        int     $THREAD_FORK_INT
        testl   %eax, %eax
        jnz     vanish_now
        int     $THREAD_FORK_INT
vanish_now:
        int     $VANISH_INT
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits

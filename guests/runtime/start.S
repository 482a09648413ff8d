/* A program's first instruction: the kernel has put main's arguments on the stack as if it had called _start. */
        .cfi_sections .debug_frame
        .text
        .globl  _start
        .type   _start, @function
_start:
        .cfi_startproc
        .cfi_undefined eip
        xorl    %ebp, %ebp
        addl    $4, %esp
        call    main
        pushl   %eax
        call    exit
        .cfi_endproc
        .size   _start, . - _start

        .section .note.GNU-stack, "", @progbits

/* int user_copy(void *to, const void *from, size_t n): 0, or -1 if either address faults on the way. */
        .cfi_sections .debug_frame
        .text
        .globl  user_copy, user_copy_start, user_copy_end, user_copy_failed
        .type   user_copy, @function
user_copy:
        .cfi_startproc
        pushl   %ebp
        .cfi_def_cfa_offset 8
        .cfi_offset ebp, -8
        movl    %esp, %ebp
        .cfi_def_cfa_register ebp
        pushl   %esi
        .cfi_offset esi, -12
        pushl   %edi
        .cfi_offset edi, -16
        movl    8(%ebp), %edi
        movl    12(%ebp), %esi
        movl    16(%ebp), %ecx
user_copy_start:
        rep movsb
user_copy_end:
        xorl    %eax, %eax
1:      popl    %edi
        popl    %esi
        popl    %ebp
        .cfi_remember_state
        .cfi_def_cfa esp, 4
        ret
        .cfi_restore_state
user_copy_failed:
        movl    $-1, %eax
        jmp     1b
        .cfi_endproc
        .size   user_copy, . - user_copy

        .section .note.GNU-stack, "", @progbits

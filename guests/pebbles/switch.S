/* The change from one kernel stack to another, and the first steps of a new thread. */
        .cfi_sections .debug_frame

        .text
/* void context_switch(uint32_t **save, uint32_t *next): returns when somebody switches back to the saved stack. */
        .globl  context_switch
        .type   context_switch, @function
context_switch:
        .cfi_startproc
        movl    4(%esp), %eax
        movl    8(%esp), %edx
        pushl   %ebp
        .cfi_adjust_cfa_offset 4
        .cfi_rel_offset ebp, 0
        pushl   %ebx
        .cfi_adjust_cfa_offset 4
        .cfi_rel_offset ebx, 0
        pushl   %esi
        .cfi_adjust_cfa_offset 4
        .cfi_rel_offset esi, 0
        pushl   %edi
        .cfi_adjust_cfa_offset 4
        .cfi_rel_offset edi, 0
        pushfl
        .cfi_adjust_cfa_offset 4
        movl    %esp, (%eax)
        movl    %edx, %esp
        popfl
        .cfi_adjust_cfa_offset -4
        popl    %edi
        .cfi_adjust_cfa_offset -4
        .cfi_restore edi
        popl    %esi
        .cfi_adjust_cfa_offset -4
        .cfi_restore esi
        popl    %ebx
        .cfi_adjust_cfa_offset -4
        .cfi_restore ebx
        popl    %ebp
        .cfi_adjust_cfa_offset -4
        .cfi_restore ebp
        ret
        .cfi_endproc
        .size   context_switch, . - context_switch

/* A new thread's stack holds what context_switch pops, this address, and the registers for user mode. */
        .globl  thread_start
        .type   thread_start, @function
thread_start:
        .cfi_startproc
        .cfi_undefined eip
        call    thread_begin
        jmp     trap_return
        .cfi_endproc
        .size   thread_start, . - thread_start

        .section .note.GNU-stack, "", @progbits

/*
 * The ways into the kernel, and the way back.
 *
 * Every vector saves the registers in the layout of struct ureg and calls trap(). So that a debugger can walk through a trap
 * at any instruction, `frame` states after each change of %esp where the interrupted code's registers are: its %eip lies
 * `distance` bytes above %esp; its %esp was saved there too if it ran in user mode, and is the end of the frame if it ran in
 * the kernel, hence the little DWARF program.
 */
#include "../lib/syscall_int.h"

        .cfi_sections .debug_frame

#define LEB(n) ((n) & 0x7f) | 0x80, (n) >> 7
#define DW_CFA_DEF_CFA_EXPRESSION 0x0f
#define DW_CFA_EXPRESSION 0x10
#define DW_OP_DEREF 0x06
#define DW_OP_DUP 0x12
#define DW_OP_DROP 0x13
#define DW_OP_AND 0x1a
#define DW_OP_BRA 0x28
#define DW_OP_LIT3 0x33
#define DW_OP_BREG_ESP 0x74
#define DW_EIP 8

        .macro  frame distance
        /* push esp + distance + 12 and what lies there; unless cs & 3, drop the latter */
        .cfi_escape DW_CFA_DEF_CFA_EXPRESSION, 15
        .cfi_escape DW_OP_BREG_ESP, LEB(\distance + 12), DW_OP_DUP, DW_OP_DEREF
        .cfi_escape DW_OP_BREG_ESP, LEB(\distance + 4), DW_OP_DEREF, DW_OP_LIT3, DW_OP_AND
        .cfi_escape DW_OP_BRA, 1, 0, DW_OP_DROP
        .cfi_escape DW_CFA_EXPRESSION, DW_EIP, 3, DW_OP_BREG_ESP, LEB(\distance)
        .endm

        .macro  vector number, has_error_code
        .type   vector_\number, @function
vector_\number:
        .cfi_startproc simple
        .cfi_signal_frame
        .if     \has_error_code
        frame   4
        .else
        frame   0
        pushl   $0
        frame   4
        .endif
        pushal
        frame   36
        movl    $\number, %eax
        jmp     trap_common
        .cfi_endproc
        .size   vector_\number, . - vector_\number

        .pushsection .rodata.vectors, "a"
        .long   \number, vector_\number
        .popsection
        .endm

        .section .rodata.vectors, "a"
        .globl  vectors
vectors:
        .text

        .irp    n, 0, 1, 3, 4, 5, 6, 7, 16, 19
        vector  \n, 0
        .endr
        .irp    n, 8, 10, 11, 12, 13, 14, 17
        vector  \n, 1
        .endr
        .irp    irq, 0x20, 0x21, 0x24, 0x27
        vector  \irq, 0
        .endr
        .irp    call, FORK_INT, EXEC_INT, WAIT_INT, YIELD_INT, DESCHEDULE_INT, MAKE_RUNNABLE_INT, GETTID_INT, \
                NEW_PAGES_INT, REMOVE_PAGES_INT, SLEEP_INT, GETCHAR_INT, READLINE_INT, PRINT_INT, \
                SET_TERM_COLOR_INT, SET_CURSOR_POS_INT, GET_CURSOR_POS_INT, THREAD_FORK_INT, GET_TICKS_INT, \
                MISBEHAVE_INT, HALT_INT, LS_INT, TASK_VANISH_INT, SET_STATUS_INT, VANISH_INT, SWEXN_INT, \
                CREATE_INT, REMOVE_INT, READDIR_INT
        vector  \call, 0
        .endr

        .type   trap_common, @function
trap_common:
        .cfi_startproc simple
        .cfi_signal_frame
        frame   36
        pushl   %gs
        frame   40
        pushl   %fs
        frame   44
        pushl   %es
        frame   48
        pushl   %ds
        frame   52
        movl    %cr2, %edx
        pushl   %edx
        frame   56
        pushl   %eax
        frame   60
        movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        cld
        movl    %esp, %eax
        pushl   %eax
        frame   64
        call    trap
        addl    $4, %esp
        frame   60

        .globl  trap_return
trap_return:
        addl    $8, %esp
        frame   52
        popl    %ds
        frame   48
        popl    %es
        frame   44
        popl    %fs
        frame   40
        popl    %gs
        frame   36
        popal
        frame   4
        addl    $4, %esp
        frame   0
        iret
        .cfi_endproc
        .size   trap_common, . - trap_common

        .section .rodata.vectors, "a"
        .globl  vectors_end
vectors_end:
        .section .note.GNU-stack, "", @progbits

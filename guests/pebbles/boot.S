/* Entry from the boot loader: find a stack, keep what Multiboot passed, and go to C. */
#define MULTIBOOT_MAGIC 0x1badb002
#define MULTIBOOT_FLAGS 0x2 /* tell us how much memory there is */

        .section .multiboot, "a"
        .align 4
        .long MULTIBOOT_MAGIC, MULTIBOOT_FLAGS, -(MULTIBOOT_MAGIC + MULTIBOOT_FLAGS)

        .cfi_sections .debug_frame
        .text
        .globl start
        .type start, @function
start:
        .cfi_startproc
        .cfi_undefined eip
        cld
        movl    $boot_stack_top, %esp
        xorl    %ebp, %ebp
        pushl   %ebx
        call    kernel_main
1:      cli
        hlt
        jmp     1b
        .cfi_endproc
        .size start, . - start

        .bss
        .align 16
        .skip 4096
boot_stack_top:

        .section .note.GNU-stack, "", @progbits

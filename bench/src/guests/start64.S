# Multiboot entry of the 64-bit guests: the way into long mode, on pages of 2 MiB until guest.c has made its own tables; and
# the stubs of exceptions and interrupts.
        .set    MAGIC, 0x1badb002
        .set    FLAGS, 3                        # modules page-aligned, memory map wanted

        .section .multiboot, "a"
        .balign 4
        .long   MAGIC, FLAGS, -(MAGIC + FLAGS)

        .text
        .code32
        .globl  start
start:
        cli
        cld
        movl    $stack_top, %esp
        movl    %ebx, %edi                      # the Multiboot information
        movl    $pointers + 3, top
        movl    $middle + 3, pointers
        movl    $middle, %ecx
        movl    $0x83, %eax
1:      movl    %eax, (%ecx)
        addl    $8, %ecx
        addl    $0x200000, %eax
        cmpl    $0x4000083, %eax
        jne     1b
        movl    $top, %eax
        movl    %eax, %cr3
        movl    %cr4, %eax
        orl     $0x20, %eax                     # PAE
        movl    %eax, %cr4
        movl    $0xc0000080, %ecx
        rdmsr
        orl     $0x100, %eax                    # long mode
        wrmsr
        movl    %cr0, %eax
        orl     $0x80010001, %eax
        movl    %eax, %cr0
        lgdt    gdt_pointer
        ljmp    $0x08, $2f

        .code64
2:      movl    $0x10, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %fs
        movl    %eax, %gs
        movl    %eax, %ss
        xorl    %ebp, %ebp
        call    guest_start
3:      hlt
        jmp     3b

        .globl  serial_entry
serial_entry:
        .irp    register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
        push    %\register
        .endr
        call    serial_interrupt
        .irp    register, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
        pop     %\register
        .endr
        iretq

        .globl  fault_entry
fault_entry:
        pop     %rdi
        pop     %rsi
        pop     %rdx
        call    fault

        .data
        .balign 8
gdt:    .quad   0
        .quad   0x00af9a000000ffff
        .quad   0x00cf92000000ffff
gdt_pointer:
        .word   . - gdt - 1
        .quad   gdt

        .bss
        .balign 4096
top:    .skip   4096
pointers: .skip 4096
middle: .skip   4096
        .skip   16384
stack_top:
        .section .note.GNU-stack, "", @progbits

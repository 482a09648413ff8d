# Multiboot entry, exception and interrupt stubs of the benchmark guests. Everything else is C.
        .set    MAGIC, 0x1badb002
        .set    FLAGS, 3                        # modules page-aligned, memory map wanted

        .section .multiboot, "a"
        .balign 4
        .long   MAGIC, FLAGS, -(MAGIC + FLAGS)

        .text
        .globl  start
start:
        cli
        cld
        movl    $stack_top, %esp
        lgdt    gdt_pointer
        ljmp    $0x08, $1f
1:      movw    $0x10, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %fs
        movw    %ax, %gs
        movw    %ax, %ss
        xorl    %ebp, %ebp
        pushl   %ebx                            # the Multiboot information
        call    guest_start
2:      hlt
        jmp     2b

        .globl  serial_entry
serial_entry:
        pushal
        call    serial_interrupt
        popal
        iret

        .globl  fault_entry
fault_entry:
        call    fault

        .data
        .balign 8
gdt:    .quad   0
        .quad   0x00cf9a000000ffff
        .quad   0x00cf92000000ffff
gdt_pointer:
        .word   . - gdt - 1
        .long   gdt

        .bss
        .balign 16
        .skip   16384
stack_top:
        .section .note.GNU-stack, "", @progbits

/* Segments, traps, and the beginning. */
#include "small.h"

struct task_state {
    uint32_t link, stack, stack_segment, rest[22];
    uint16_t trap, io_map;
};

struct __attribute__((packed)) table_register {
    uint16_t limit;
    uint32_t base;
};

volatile int ticks;
int interrupts_were_on;
static int off_depth;
static struct task_state task = {.stack_segment = KERNEL_DATA, .io_map = sizeof task};
static uint32_t boot_directory[1024] __attribute__((aligned(4096)));

void interrupts_off(void)
{
    uint32_t flags;
    __asm__ volatile("pushfl; popl %0; cli" : "=r"(flags) : : "memory");
    if (off_depth++ == 0)
        interrupts_were_on = (flags & FLAG_INTERRUPTS) != 0;
}

void interrupts_back(void)
{
    if (--off_depth == 0 && interrupts_were_on)
        __asm__ volatile("sti" : : : "memory");
}

void enter_process(struct process *process)
{
    current = process;
    task.stack = (uint32_t)process->stack + PAGE;
    __asm__ volatile("movl %0, %%cr3" : : "r"(process->directory) : "memory");
}

/* Pushes what struct frame holds; those vectors that bring an error code of their own are the processor's. */
#define STUB(name, vector, error)                                                                                           \
    void name(void);                                                                                                        \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n" error "  pushl $" #vector "\n  jmp trap_entry\n"               \
            ".size " #name ", . - " #name "\n")
STUB(on_protection, 13, "");
STUB(on_page_fault, 14, "");
STUB(on_timer, 0x20, "  pushl $0\n");
STUB(on_keyboard, 0x21, "  pushl $0\n");
STUB(on_disk, 0x2e, "  pushl $0\n");
STUB(on_system_call, 0x40, "  pushl $0\n");
__asm__(".text\n"
        ".type trap_entry, @function\n"
        "trap_entry:\n"
        "  pushal\n"
        "  pushl %ds\n"
        "  pushl %es\n"
        "  movl $0x10, %eax\n"
        "  movl %eax, %ds\n"
        "  movl %eax, %es\n"
        "  cld\n"
        "  pushl %esp\n"
        "  call trap\n"
        "  addl $4, %esp\n"
        ".size trap_entry, . - trap_entry\n"
        ".globl trap_return\n"
        ".type trap_return, @function\n"
        "trap_return:\n"
        "  popl %es\n"
        "  popl %ds\n"
        "  popal\n"
        "  addl $8, %esp\n"
        "  iret\n"
        ".size trap_return, . - trap_return\n");

static void acknowledge(uint32_t vector)
{
    if (vector >= 0x28)
        outb(0xa0, 0x20);
    outb(0x20, 0x20);
}

/* A program that does what it must not is ended. */
static void fault(const struct frame *frame)
{
    if (!(frame->cs & 3))
        panic("a fault in the kernel");
    print("killed\n");
    sys_exit();
}

void trap(struct frame *frame)
{
    switch (frame->vector) {
    case SYSTEM_CALL:
        frame->eax = (uint32_t)system_call(frame);
        return;
    case TIMER:
        ticks++;
        break;
    case KEYBOARD:
        keyboard_interrupt();
        break;
    case DISK:
        disk_interrupt();
        break;
    default:
        fault(frame);
    }
    acknowledge(frame->vector);
    if (frame->vector == TIMER && current && current->state == RUNNING)
        yield();
    if (current && current->killed && (frame->cs & 3))
        sys_exit();
}

static void set_gate(uint32_t gates[][2], int vector, void (*entry)(void), uint32_t kind)
{
    gates[vector][0] = (uint32_t)KERNEL_CODE << 16 | ((uint32_t)entry & 0xffff);
    gates[vector][1] = ((uint32_t)entry & 0xffff0000) | kind;
}

static void segments_init(void)
{
    static uint32_t segments[6][2] = {
        {0, 0}, {0xffff, 0xcf9a00}, {0xffff, 0xcf9200}, {0xffff, 0xcffa00}, {0xffff, 0xcff200},
    };
    static uint32_t gates[VECTORS][2];
    enum { INTERRUPT = 0x8e00, CALL = 0xef00 };
    uint32_t base = (uint32_t)&task;
    segments[5][0] = base << 16 | (sizeof task - 1);
    segments[5][1] = (base & 0xff000000) | 0x8900 | (base >> 16 & 0xff);
    set_gate(gates, 13, on_protection, INTERRUPT);
    set_gate(gates, 14, on_page_fault, INTERRUPT);
    set_gate(gates, TIMER, on_timer, INTERRUPT);
    set_gate(gates, KEYBOARD, on_keyboard, INTERRUPT);
    set_gate(gates, DISK, on_disk, INTERRUPT);
    set_gate(gates, SYSTEM_CALL, on_system_call, CALL);
    struct table_register gdt = {sizeof segments - 1, (uint32_t)segments};
    struct table_register idt = {sizeof gates - 1, (uint32_t)gates};
    __asm__ volatile("lgdt %0\n"
                     "ljmp $0x08, $1f\n"
                     "1: movl $0x10, %%eax\n"
                     "movl %%eax, %%ds\n"
                     "movl %%eax, %%es\n"
                     "movl %%eax, %%ss\n"
                     "lidt %1\n"
                     "ltr %w2"
                     :
                     : "m"(gdt), "m"(idt), "r"(TASK)
                     : "eax", "memory");
}

/* The kernel is where it is, in a page of four megabytes that all processes have. */
static void paging_init(void)
{
    boot_directory[0] = LARGE | WRITABLE | PRESENT;
    __asm__ volatile("movl %%cr4, %%eax\n"
                     "orl $0x10, %%eax\n"
                     "movl %%eax, %%cr4\n"
                     "movl %0, %%cr3\n"
                     "movl %%cr0, %%eax\n"
                     "orl $0x80010000, %%eax\n"
                     "movl %%eax, %%cr0"
                     :
                     : "r"(boot_directory)
                     : "eax", "memory");
}

/* Interrupts 0x20 and up: the timer's, the keyboard's and the disk's. */
static void interrupts_init(void)
{
    outb(0x20, 0x11), outb(0x21, TIMER), outb(0x21, 4), outb(0x21, 1), outb(0x21, 0xf8);
    outb(0xa0, 0x11), outb(0xa1, TIMER + 8), outb(0xa1, 2), outb(0xa1, 1), outb(0xa1, 0xbf);
    outb(0x43, 0x36), outb(0x40, 0x9c), outb(0x40, 0x2e);
}

void kernel_main(void)
{
    segments_init();
    paging_init();
    interrupts_init();
    heap_init();
    first_process();
    scheduler();
}

__asm__(".section .multiboot, \"a\"\n"
        ".align 4\n"
        ".long 0x1badb002, 0, -0x1badb002\n"
        ".text\n"
        ".globl start\n"
        ".type start, @function\n"
        "start:\n"
        "  movl $boot_stack_top, %esp\n"
        "  xorl %ebp, %ebp\n"
        "  call kernel_main\n"
        ".size start, . - start\n"
        ".bss\n"
        ".align 16\n"
        ".skip 4096\n"
        "boot_stack_top:\n"
        ".previous\n");

/*
 * Segments, interrupt controller, and the power switch.
 *
 * Segmentation is as flat as the processor allows: code and data for each of the two privilege levels, and the task state
 * segment that names the kernel stack. The two 8259A controllers deliver IRQ n as vector IRQ_VECTOR + n.
 */
#include "machine.h"

#include "x86.h"

#define DESCRIPTOR(type, dpl)                                                                                               \
    {                                                                                                                       \
        0x0000ffff, 0x00cf0000 | (0x90 | (dpl) << 5 | (type)) << 8                                                          \
    }

enum { CODE = 0xa, DATA = 0x2, TSS_AVAILABLE = 0x89 };

static struct {
    uint32_t link, esp0, ss0;
    uint32_t rest[22];
    uint16_t trap, io_map;
} tss = {.ss0 = KERNEL_DS, .io_map = 104};

static uint32_t gdt[6][2] = {
    {0, 0}, DESCRIPTOR(CODE, 0), DESCRIPTOR(DATA, 0), DESCRIPTOR(CODE, 3), DESCRIPTOR(DATA, 3),
};

void segments_init(void)
{
    uint32_t base = (uint32_t)&tss;
    gdt[5][0] = base << 16 | (sizeof tss - 1);
    gdt[5][1] = (base & 0xff000000) | TSS_AVAILABLE << 8 | ((base >> 16) & 0xff);

    struct {
        uint16_t limit;
        uint32_t base;
    } __attribute__((packed)) gdtr = {sizeof gdt - 1, (uint32_t)gdt};
    asm volatile("lgdt %0\n\t"
                 "ljmp %1, $1f\n"
                 "1:\tmovl %2, %%eax\n\t"
                 "movl %%eax, %%ds; movl %%eax, %%es; movl %%eax, %%ss\n\t"
                 "movl %%eax, %%fs; movl %%eax, %%gs\n\t"
                 "ltr %w3"
                 :
                 : "m"(gdtr), "i"(KERNEL_CS), "i"(KERNEL_DS), "r"(TSS_SELECTOR)
                 : "eax", "memory");
}

void segments_set_kernel_stack(void *top)
{
    tss.esp0 = (uint32_t)top;
}

enum { PIC1 = 0x20, PIC2 = 0xa0, PIC_INIT = 0x11, PIC_8086 = 1, PIC_CASCADE = 2, PIC_EOI = 0x20 };

static uint8_t irq_mask = (uint8_t) ~(1 << PIC_CASCADE);

void irq_init(void)
{
    outb(PIC1, PIC_INIT);
    outb(PIC2, PIC_INIT);
    outb(PIC1 + 1, IRQ_VECTOR);
    outb(PIC2 + 1, IRQ_VECTOR + 8);
    outb(PIC1 + 1, 1 << PIC_CASCADE);
    outb(PIC2 + 1, PIC_CASCADE);
    outb(PIC1 + 1, PIC_8086);
    outb(PIC2 + 1, PIC_8086);
    outb(PIC1 + 1, irq_mask);
    outb(PIC2 + 1, 0xff);
}

void irq_enable(int irq)
{
    irq_mask &= ~(1 << irq);
    outb(PIC1 + 1, irq_mask);
}

void irq_acknowledge(void)
{
    outb(PIC1, PIC_EOI);
}

enum { ACPI_CONTROL = 0x604, ACPI_OFF = 0x2000 };

void machine_off(void)
{
    outw(ACPI_CONTROL, ACPI_OFF);
    for (;;)
        asm volatile("cli; hlt");
}

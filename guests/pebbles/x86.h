/* Instructions that C has no words for. */
#ifndef X86_H
#define X86_H

#include <stdbool.h>
#include <stdint.h>

#define EFLAGS_RESERVED 0x2u
#define EFLAGS_USER_MAY_SET 0x250dd5u /* arithmetic flags, TF, DF, RF (set in the image a fault saves), AC, ID */
#define EFLAGS_IF 0x200u

#define KERNEL_CS 0x08
#define KERNEL_DS 0x10
#define USER_CS 0x1b
#define USER_DS 0x23
#define TSS_SELECTOR 0x28

static inline void outb(uint16_t port, uint8_t value)
{
    asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline void outw(uint16_t port, uint16_t value)
{
    asm volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t value;
    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline uint32_t get_eflags(void)
{
    uint32_t flags;
    asm volatile("pushfl; popl %0" : "=r"(flags));
    return flags;
}

static inline void disable_interrupts(void)
{
    asm volatile("cli" : : : "memory");
}

static inline void enable_interrupts(void)
{
    asm volatile("sti" : : : "memory");
}

static inline bool interrupts_enabled(void)
{
    return get_eflags() & EFLAGS_IF;
}

static inline uint32_t get_cr3(void)
{
    uint32_t value;
    asm volatile("movl %%cr3, %0" : "=r"(value));
    return value;
}

static inline void set_cr3(uint32_t value)
{
    asm volatile("movl %0, %%cr3" : : "r"(value) : "memory");
}

static inline void flush_page(uint32_t address)
{
    asm volatile("invlpg (%0)" : : "r"(address) : "memory");
}

#endif

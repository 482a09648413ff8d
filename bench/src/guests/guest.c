/*
 * Brings a benchmark guest up: page tables (4 KiB pages, identity), interrupt table, serial port; reports the
 * phases' checksums at the end and switches the machine off.
 */
#include "guest.h"

#define MEMORY_MIB 64
#define ENTRIES (4096 / sizeof(word))
#define PRESENT_WRITABLE 3
#define COM1 0x3f8
#define COM1_VECTOR 0x24
#define PHASES_MAX 32

static word directory[ENTRIES] __attribute__((aligned(4096)));
static word tables[MEMORY_MIB * 256 / ENTRIES][ENTRIES] __attribute__((aligned(4096)));
static struct {
    u16 low, selector, type, high;
#ifdef __x86_64__
    u32 upper, reserved;
#endif
} idt[48];

static struct { const char *name; u32 checksum; } phases[PHASES_MAX];
static u32 phases_len;
static volatile u32 answers;

extern void serial_entry(void), fault_entry(void);

static void outb(u16 port, u8 value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
static void outw(u16 port, u16 value) { asm volatile("outw %0, %1" : : "a"(value), "Nd"(port)); }
static u8 inb(u16 port) {
    u8 value;
    asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void put(char c) {
    while (!(inb(COM1 + 5) & 0x20)) {}
    outb(COM1, c);
}

static void text(const char *s) {
    while (*s) put(*s++);
}

static void hex(u32 value) {
    for (int shift = 28; shift >= 0; shift -= 4) put("0123456789abcdef"[value >> shift & 15]);
}

static void __attribute__((noreturn)) power_off(void) {
    outw(0x604, 0x2000);
    for (;;) asm volatile("cli; hlt");
}

void fault(u32 first, u32 second, u32 third) {
    text("\nfault ");
    hex(first), put(' '), hex(second), put(' '), hex(third), put('\n');
    power_off();
}

void serial_interrupt(void) {
    while (inb(COM1 + 5) & 1) {
        inb(COM1);
        answers++;
    }
    outb(0x20, 0x20);
}

void mark(const char *phase, u32 checksum) {
    phases[phases_len].name = phase;
    phases[phases_len++].checksum = checksum;
    u32 before = answers;
    put('.');
    while (answers == before) asm volatile("sti; hlt; cli" : : : "memory");
}

static void gate(u32 vector, void (*entry)(void)) {
    idt[vector].low = (word)entry;
    idt[vector].high = (word)entry >> 16;
    idt[vector].selector = 8;
    idt[vector].type = 0x8e00;
}

static void interrupts(void) {
    for (u32 vector = 0; vector < 32; vector++) gate(vector, fault_entry);
    gate(COM1_VECTOR, serial_entry);
    struct { u16 limit; word base; } __attribute__((packed)) pointer = { sizeof idt - 1, (word)idt };
    asm volatile("lidt %0" : : "m"(pointer));
    static const u8 chips[][2] = {
        { 0x20, 0x11 }, { 0x21, 0x20 }, { 0x21, 4 }, { 0x21, 1 }, { 0x21, 0xef },
        { 0xa0, 0x11 }, { 0xa1, 0x28 }, { 0xa1, 2 }, { 0xa1, 1 }, { 0xa1, 0xff },
    };
    for (u32 i = 0; i < LEN(chips); i++) outb(chips[i][0], chips[i][1]);
    outb(COM1 + 3, 3);
    outb(COM1 + 4, 0x0b);
    outb(COM1 + 1, 1);
}

static void paging(void) {
    for (u32 page = 0; page < MEMORY_MIB * 256; page++)
        tables[page / ENTRIES][page % ENTRIES] = page << 12 | PRESENT_WRITABLE;
    for (u32 i = 0; i < LEN(tables); i++) directory[i] = (word)tables[i] | PRESENT_WRITABLE;
#ifdef __x86_64__
    static word top[ENTRIES] __attribute__((aligned(4096))), pointers[ENTRIES] __attribute__((aligned(4096)));
    top[0] = (word)pointers | PRESENT_WRITABLE;
    pointers[0] = (word)directory | PRESENT_WRITABLE;
    asm volatile("mov %0, %%cr3" : : "r"(top) : "memory");
#else
    asm volatile("movl %0, %%cr3" : : "r"(directory));
    asm volatile("movl %%cr0, %%eax; orl $0x80010000, %%eax; movl %%eax, %%cr0" : : : "eax", "memory");
#endif
}

/* The number after "repeat=" on the command line, or 1. */
static u32 repeat_wanted(const u32 *multiboot) {
    static const char key[] = "repeat=";
    if (!(multiboot[0] & 4)) return 1;
    for (const char *s = (const char *)(word)multiboot[4]; *s; s++) {
        u32 n = 0;
        while (key[n] && s[n] == key[n]) n++;
        if (key[n]) continue;
        u32 value = 0;
        for (s += n; *s >= '0' && *s <= '9'; s++) value = value * 10 + (*s - '0');
        return value;
    }
    return 1;
}

void guest_start(const u32 *multiboot) {
    u32 repeat = repeat_wanted(multiboot);
    paging();
    interrupts();
    mark("boot", 0);
    guest_main(repeat);
    for (u32 i = 0; i < phases_len; i++) {
        text("\n");
        text(phases[i].name);
        put(' ');
        hex(phases[i].checksum);
    }
    text("\n");
    power_off();
}

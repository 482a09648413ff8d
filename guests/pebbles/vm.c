#include "vm.h"

#include "../lib/string.h"
#include "multiboot.h"
#include "panic.h"
#include "preempt.h"
#include "x86.h"

enum { ENTRIES = 1024, KERNEL_TABLES = USER_START / (PAGE_SIZE * ENTRIES) };

#define FRAME(entry) ((entry) & ~0xfffu)

extern char kernel_end[];

/* Page frames: those that are free, as a stack. */

enum { FRAMES_MAX = USER_START / PAGE_SIZE };

static void *free_frames[FRAMES_MAX];
static int free_count;

void frames_init(uint32_t memory_kib)
{
    uint32_t memory_end = memory_kib < USER_START / 1024 ? memory_kib * 1024 : USER_START;
    uint32_t first = (uint32_t)kernel_end;
    if (modules_end() > first)
        first = FRAME(modules_end() + PAGE_SIZE - 1);
    for (uint32_t frame = FRAME(memory_end) - PAGE_SIZE; frame >= first; frame -= PAGE_SIZE)
        free_frames[free_count++] = (void *)frame;
}

void *frame_take(void)
{
    preempt_disable();
    void *frame = free_count > 0 ? free_frames[--free_count] : NULL;
    preempt_enable();
    return frame;
}

void frame_give(void *frame)
{
    assert((char *)frame >= kernel_end && (uint32_t)frame < USER_START);
    preempt_disable();
    assert(free_count < FRAMES_MAX);
    free_frames[free_count++] = frame;
    preempt_enable();
}

/* Address spaces. */

uint32_t *kernel_directory;

void vm_init(void)
{
    kernel_directory = frame_take();
    memset(kernel_directory, 0, PAGE_SIZE);
    for (uint32_t t = 0; t < KERNEL_TABLES; t++) {
        uint32_t *table = frame_take();
        for (uint32_t i = 0; i < ENTRIES; i++)
            table[i] = (t * ENTRIES + i) * PAGE_SIZE | PAGE_PRESENT | PAGE_WRITABLE;
        kernel_directory[t] = (uint32_t)table | PAGE_PRESENT | PAGE_WRITABLE;
        if (t == 0)
            table[0] = 0; /* NULL points nowhere */
    }
    set_cr3((uint32_t)kernel_directory);
    uint32_t cr0;
    asm volatile("movl %%cr0, %0" : "=r"(cr0));
    cr0 |= 0x80010000; /* paging, and read-only pages are so for the kernel too */
    asm volatile("movl %0, %%cr0" : : "r"(cr0) : "memory");
}

void vm_activate(uint32_t *directory)
{
    if (get_cr3() != (uint32_t)directory)
        set_cr3((uint32_t)directory);
}

uint32_t *vm_create(void)
{
    uint32_t *directory = frame_take();
    if (!directory)
        return NULL;
    memset(directory, 0, PAGE_SIZE);
    memcpy(directory, kernel_directory, KERNEL_TABLES * sizeof *directory);
    return directory;
}

uint32_t *vm_entry(uint32_t *directory, uint32_t address)
{
    uint32_t table = directory[address / PAGE_SIZE / ENTRIES];
    return table ? (uint32_t *)FRAME(table) + address / PAGE_SIZE % ENTRIES : NULL;
}

void *vm_add_page(uint32_t *directory, uint32_t address, uint32_t flags)
{
    uint32_t *table = &directory[address / PAGE_SIZE / ENTRIES];
    assert(address >= USER_START && address < USER_END);
    if (!*table) {
        void *frame = frame_take();
        if (!frame)
            return NULL;
        memset(frame, 0, PAGE_SIZE);
        *table = (uint32_t)frame | PAGE_PRESENT | PAGE_WRITABLE | PAGE_USER;
    }
    uint32_t *entry = vm_entry(directory, address);
    assert(!*entry);
    void *frame = frame_take();
    if (!frame)
        return NULL; /* an empty table stays until the address space goes */
    memset(frame, 0, PAGE_SIZE);
    *entry = (uint32_t)frame | PAGE_PRESENT | PAGE_USER | flags;
    return frame;
}

void vm_remove_page(uint32_t *directory, uint32_t address)
{
    uint32_t *entry = vm_entry(directory, address);
    void *frame = (void *)FRAME(*entry);
    *entry = 0;
    flush_page(address);
    frame_give(frame);
}

void vm_free(uint32_t *directory)
{
#ifndef FAULT_DIRECTORY_FREED_EARLY
    assert(get_cr3() != (uint32_t)directory);
#endif
    for (uint32_t t = KERNEL_TABLES; t < ENTRIES; t++) {
        if (!directory[t])
            continue;
        uint32_t *table = (uint32_t *)FRAME(directory[t]);
        for (uint32_t i = 0; i < ENTRIES; i++)
            if (table[i])
                frame_give((void *)FRAME(table[i]));
        frame_give(table);
    }
    frame_give(directory);
}

uint32_t *vm_copy(uint32_t *directory)
{
    uint32_t *copy = vm_create();
    if (!copy)
        return NULL;
    for (uint32_t t = KERNEL_TABLES; t < ENTRIES; t++) {
        if (!directory[t])
            continue;
        uint32_t *table = (uint32_t *)FRAME(directory[t]);
        for (uint32_t i = 0; i < ENTRIES; i++) {
            if (!table[i])
                continue;
            uint32_t address = (t * ENTRIES + i) * PAGE_SIZE;
            void *page = vm_add_page(copy, address, table[i] & (PAGE_WRITABLE | PAGE_FIRST | PAGE_LAST));
            if (!page) {
                vm_free(copy);
                return NULL;
            }
            memcpy(page, (void *)address, PAGE_SIZE);
        }
    }
    return copy;
}

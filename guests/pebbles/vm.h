/*
 * Virtual memory.
 *
 * All memory the machine is asked for lies below USER_START and every address space maps it one to one for the kernel; user
 * programs live above. So the kernel reaches any page frame by its physical address.
 */
#ifndef VM_H
#define VM_H

#include <stdbool.h>
#include <stdint.h>

enum { PAGE_SIZE = 4096 };

#define USER_START 0x01000000u
#define USER_END 0xc0000000u /* user stacks grow down from here */

enum {
    PAGE_PRESENT = 1,
    PAGE_WRITABLE = 2,
    PAGE_USER = 4,
    PAGE_FIRST = 0x200, /* of those that one new_pages call made */
    PAGE_LAST = 0x400,
};

extern uint32_t *kernel_directory;

void frames_init(uint32_t memory_kib);
void *frame_take(void); /* NULL if memory is short */
void frame_give(void *frame);

void vm_init(void);
void vm_activate(uint32_t *directory);

uint32_t *vm_create(void);
uint32_t *vm_copy(uint32_t *directory); /* of the current task, under its vm_lock */
void vm_free(uint32_t *directory);

/* A zeroed page at that address, as seen by the kernel; NULL if memory is short. The address must be free. */
void *vm_add_page(uint32_t *directory, uint32_t address, uint32_t flags);
void vm_remove_page(uint32_t *directory, uint32_t address);

/* The page table entry of an address, or NULL if there is none. */
uint32_t *vm_entry(uint32_t *directory, uint32_t address);

#endif

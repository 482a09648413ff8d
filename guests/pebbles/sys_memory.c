/* new_pages and remove_pages. The first and the last page of each allocation are marked in the page table. */
#include "syscall.h"
#include "task.h"
#include "vm.h"

#ifdef FAULT_PAGE_TABLE_LOST
#include "../lib/string.h"

/* Makes the page table before the lock is taken, so that it is held for a shorter time. */
static bool prepare(uint32_t *directory, uint32_t address)
{
    uint32_t *table = &directory[address / (1024 * PAGE_SIZE)];
    if (*table)
        return true;
    void *frame = frame_take();
    if (!frame)
        return false;
    memset(frame, 0, PAGE_SIZE);
    *table = (uint32_t)frame | PAGE_PRESENT | PAGE_WRITABLE | PAGE_USER;
    return true;
}
#endif

static bool is_free(uint32_t *directory, uint32_t base, uint32_t length)
{
    for (uint32_t page = base; page < base + length; page += PAGE_SIZE) {
        uint32_t *entry = vm_entry(directory, page);
        if (entry && *entry)
            return false;
    }
    return true;
}

static bool add_pages(uint32_t *directory, uint32_t base, uint32_t length)
{
    for (uint32_t page = base; page < base + length; page += PAGE_SIZE) {
        uint32_t flags = PAGE_WRITABLE | (page == base ? PAGE_FIRST : 0) |
                         (page == base + length - PAGE_SIZE ? PAGE_LAST : 0);
        if (!vm_add_page(directory, page, flags)) {
            while (page > base)
                vm_remove_page(directory, page -= PAGE_SIZE);
            return false;
        }
    }
    return true;
}

int sys_new_pages(struct ureg *u)
{
    uint32_t packet[2];
    if (!get_args(u, packet, 2))
        return SYSCALL_ERROR;
    uint32_t base = packet[0], length = packet[1];
    if (base % PAGE_SIZE || length % PAGE_SIZE || length == 0)
        return SYSCALL_ERROR;
    if (base < USER_START || base >= USER_END || length > USER_END - base)
        return SYSCALL_ERROR;
    struct task *task = current->task;
#ifdef FAULT_NEW_PAGES_UNLOCKED
    bool done = is_free(task->directory, base, length) && add_pages(task->directory, base, length);
#else
#ifdef FAULT_PAGE_TABLE_LOST
    if (!prepare(task->directory, base))
        return SYSCALL_ERROR;
#endif
    mutex_lock(&task->vm_lock);
    bool done = is_free(task->directory, base, length) && add_pages(task->directory, base, length);
    mutex_unlock(&task->vm_lock);
#endif
    return done ? 0 : SYSCALL_ERROR;
}

int sys_remove_pages(struct ureg *u)
{
    uint32_t base = u->esi;
    if (base % PAGE_SIZE || base < USER_START || base >= USER_END)
        return SYSCALL_ERROR;
    struct task *task = current->task;
    mutex_lock(&task->vm_lock);
    uint32_t *entry = vm_entry(task->directory, base);
    bool found = entry && (*entry & PAGE_FIRST);
    for (bool last = !found; !last; base += PAGE_SIZE) {
        last = *vm_entry(task->directory, base) & PAGE_LAST;
        vm_remove_page(task->directory, base);
    }
    mutex_unlock(&task->vm_lock);
    return found ? 0 : SYSCALL_ERROR;
}

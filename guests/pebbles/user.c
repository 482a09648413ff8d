#include "user.h"

#include "../lib/string.h"
#include "task.h"
#include "vm.h"

int user_copy(void *to, const void *from, size_t n);
extern char user_copy_start[], user_copy_end[], user_copy_failed[];

static bool is_user(uint32_t address, size_t n)
{
    return address >= USER_START && address < USER_END && n <= USER_END - address;
}

bool copy_from_user(void *to, uint32_t from, size_t n)
{
    return is_user(from, n) && user_copy(to, (const void *)from, n) == 0;
}

#ifdef FAULT_CHECK_THEN_COPY
bool copy_to_user(uint32_t to, const void *from, size_t n)
{
    if (!user_can_write(to, n))
        return false;
    memcpy((void *)to, from, n);
    return true;
}
#else
bool copy_to_user(uint32_t to, const void *from, size_t n)
{
    return is_user(to, n) && user_copy((void *)to, from, n) == 0;
}
#endif

int copy_string_from_user(char *to, uint32_t from, size_t max)
{
    for (size_t i = 0; i < max; i++) {
        if (!copy_from_user(&to[i], from + i, 1))
            return -1;
        if (!to[i])
            return (int)i;
    }
    return -1;
}

bool user_can_write(uint32_t address, size_t n)
{
    if (!is_user(address, n))
        return false;
    for (uint32_t page = address & ~(PAGE_SIZE - 1u); page < address + n; page += PAGE_SIZE) {
        uint32_t *entry = vm_entry(current->task->directory, page);
        if (!entry || !(*entry & PAGE_WRITABLE))
            return false;
    }
    return true;
}

uint32_t user_copy_failure(uint32_t eip)
{
    bool inside = eip >= (uint32_t)user_copy_start && eip < (uint32_t)user_copy_end;
    return inside ? (uint32_t)user_copy_failed : 0;
}

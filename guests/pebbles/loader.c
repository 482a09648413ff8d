#include "loader.h"

#include "../lib/string.h"
#include "multiboot.h"
#include "vm.h"
#include "x86.h"

enum { STACK_PAGES = 4 };

struct elf_header {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version, entry, segments_at, sections_at, flags;
    uint16_t header_size, segment_size, segments;
};

struct elf_segment {
    uint32_t type, at, address, physical, file_size, memory_size, flags, align;
};

enum { ELF_EXECUTABLE = 2, ELF_386 = 3, SEGMENT_LOAD = 1, SEGMENT_WRITABLE = 2 };

/* What the boot loader brought goes before what is on the disk. */
static const struct ramdisk_file *find_file(const char *name)
{
    const struct ramdisk_file *module = module_find(name);
    if (module)
        return module;
    for (const struct ramdisk_file *f = ramdisk; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

/* Copies into an address space that is not the current one, adding pages where there are none. */
static bool write_memory(uint32_t *directory, uint32_t to, const char *from, uint32_t n, uint32_t flags)
{
    while (n > 0) {
        uint32_t offset = to % PAGE_SIZE, part = PAGE_SIZE - offset < n ? PAGE_SIZE - offset : n;
        uint32_t *entry = vm_entry(directory, to);
        char *page = entry && *entry ? (char *)(*entry & ~0xfffu) : vm_add_page(directory, to - offset, flags);
        if (!page)
            return false;
        if (from) {
            memcpy(page + offset, from, part);
            from += part;
        }
        to += part;
        n -= part;
    }
    return true;
}

static bool load_segment(uint32_t *directory, const struct ramdisk_file *f, const struct elf_segment *s)
{
    uint32_t size = (uint32_t)(f->end - f->start), last = s->address + s->memory_size;
    if (s->at > size || s->file_size > size - s->at || s->file_size > s->memory_size)
        return false;
    /* A linker that is told where the code begins may put the file's headers into the page before it. */
    uint32_t below = s->address < USER_START ? USER_START - s->address : 0;
    if (below > PAGE_SIZE || last < s->address || last > USER_END - STACK_PAGES * PAGE_SIZE)
        return false;
    uint32_t cut = below < s->file_size ? below : s->file_size, in_file = s->file_size - cut;
    uint32_t in_memory = s->memory_size > below ? s->memory_size - below : 0, address = s->address + below;
    uint32_t flags = s->flags & SEGMENT_WRITABLE ? PAGE_WRITABLE : 0;
    if (in_file > in_memory)
        return false;
    return write_memory(directory, address, f->start + s->at + cut, in_file, flags) &&
           write_memory(directory, address + in_file, NULL, in_memory - in_file, flags);
}

/*
 * Lays out the arguments of a program's first function at the top of the stack: argc, argv, and the highest and the lowest
 * address of the stack. Returns the stack pointer, or 0.
 */
static uint32_t build_stack(uint32_t *directory, const struct args *args)
{
    for (uint32_t i = 1; i <= STACK_PAGES; i++)
        if (!vm_add_page(directory, USER_END - i * PAGE_SIZE, PAGE_WRITABLE))
            return 0;
    uint32_t strings = (USER_END - (uint32_t)args->size) & ~3u;
    uint32_t words[5 + ARGS_MAX + 1];
    uint32_t count = (uint32_t)args->count, used = 5 + count + 1;
    uint32_t sp = strings - used * sizeof words[0];
    words[0] = 0; /* its caller */
    words[1] = count;
    words[2] = sp + 5 * sizeof words[0];
    words[3] = USER_END - 1;
    words[4] = USER_END - STACK_PAGES * PAGE_SIZE;
    uint32_t at = strings;
    for (uint32_t i = 0; i < count; i++) {
        words[5 + i] = at;
        at += strlen(args->strings + (at - strings)) + 1;
    }
    words[5 + count] = 0;
    if (!write_memory(directory, strings, args->strings, (uint32_t)args->size, PAGE_WRITABLE) ||
        !write_memory(directory, sp, (const char *)words, used * sizeof words[0], PAGE_WRITABLE))
        return 0;
    return sp;
}

uint32_t *load_program(const char *name, const struct args *args, struct ureg *registers)
{
    const struct ramdisk_file *f = find_file(name);
    if (!f)
        return NULL;
    const struct elf_header *elf = (const void *)f->start;
    uint32_t size = (uint32_t)(f->end - f->start);
    if (size < sizeof *elf || memcmp(elf->ident, "\177ELF", 4) != 0 || elf->type != ELF_EXECUTABLE ||
        elf->machine != ELF_386 || elf->segments_at > size ||
        elf->segments * sizeof(struct elf_segment) > size - elf->segments_at)
        return NULL;
    uint32_t *directory = vm_create();
    if (!directory)
        return NULL;
    const struct elf_segment *segment = (const void *)(f->start + elf->segments_at);
    bool loaded = true;
    for (int i = 0; loaded && i < elf->segments; i++)
        if (segment[i].type == SEGMENT_LOAD && segment[i].memory_size > 0)
            loaded = load_segment(directory, f, &segment[i]);
    uint32_t sp = loaded ? build_stack(directory, args) : 0;
    if (!sp) {
        vm_free(directory);
        return NULL;
    }
    *registers = (struct ureg){
        .ds = USER_DS, .es = USER_DS, .fs = USER_DS, .gs = USER_DS, .ss = USER_DS, .cs = USER_CS,
        .eip = elf->entry, .esp = sp, .eflags = EFLAGS_RESERVED | EFLAGS_IF,
    };
    return directory;
}

/* What a Multiboot loader passes, as far as it is of use here, and the programs among it. */
#ifndef MULTIBOOT_H
#define MULTIBOOT_H

#include <stdint.h>

enum { MULTIBOOT_MEMORY = 1, MULTIBOOT_COMMAND_LINE = 4, MULTIBOOT_MODULES = 8 };

struct multiboot {
    uint32_t flags, memory_lower_kib, memory_upper_kib, boot_device, command_line, module_count, modules;
};

struct multiboot_module {
    uint32_t start, end, command_line, reserved;
};

struct ramdisk_file;

/* Notes the modules, which are programs: each is called by the last part of the first word of its command line. */
void modules_init(const struct multiboot *boot);
const struct ramdisk_file *module_find(const char *name); /* NULL if there is none of that name */
uint32_t modules_end(void);                               /* no module lies behind it */

#endif

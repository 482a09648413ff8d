/* Programs that the boot loader brought along. They stay where the loader put them. */
#include "multiboot.h"

#include "../lib/string.h"
#include "loader.h"

enum { MODULES_MAX = 8, NAME_MAX = 32 };

static struct ramdisk_file modules[MODULES_MAX];
static char names[MODULES_MAX][NAME_MAX];
static uint32_t count, last_end;

static void copy_name(char *to, const char *line)
{
    int n = 0;
    for (; *line && *line != ' '; line++) {
        if (*line == '/')
            n = 0;
        else if (n < NAME_MAX - 1)
            to[n++] = *line;
    }
    to[n] = '\0';
}

void modules_init(const struct multiboot *boot)
{
    if (!(boot->flags & MULTIBOOT_MODULES))
        return;
    const struct multiboot_module *module = (const void *)boot->modules;
    for (; count < boot->module_count && count < MODULES_MAX; count++, module++) {
        copy_name(names[count], (const char *)module->command_line);
        modules[count].name = names[count];
        modules[count].start = (const char *)module->start;
        modules[count].end = (const char *)module->end;
        if (module->end > last_end)
            last_end = module->end;
    }
}

const struct ramdisk_file *module_find(const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(modules[i].name, name) == 0)
            return &modules[i];
    return NULL;
}

uint32_t modules_end(void)
{
    return last_end;
}

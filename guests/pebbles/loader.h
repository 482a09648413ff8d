/* Programs: where they come from and how they get into memory. */
#ifndef LOADER_H
#define LOADER_H

#include <stdint.h>

#include "../lib/ureg.h"

struct ramdisk_file {
    const char *name;
    const char *start, *end;
};

/* The directory, ended by an entry without name; made when the image is built. */
extern const struct ramdisk_file ramdisk[];

enum { ARGS_MAX = 16, ARGS_SIZE_MAX = 512 };

/* Strings one behind the other, each with its NUL. */
struct args {
    int count;
    int size;
    char strings[ARGS_SIZE_MAX];
};

/*
 * Builds an address space for a program and the registers it starts with. Returns NULL, with everything given back, if there
 * is no such program or memory is short.
 */
uint32_t *load_program(const char *name, const struct args *args, struct ureg *registers);

#endif

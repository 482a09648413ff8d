/* What the generated functions of the wide guest work on. */
#pragma once
#include "guest.h"

#define OBJECTS 1024

struct object {
    u32 a, b, c, d;
    u32 count, flags;
    struct object *next;
    u8 name[20];
};

extern struct object objects[OBJECTS];
extern u32 events[64];

/*
 * Wide code: thousands of distinct functions (generated), each called once a pass in an order that differs from
 * pass to pass. The first pass runs code nobody has seen yet and is a phase of its own.
 */
#include "wide.h"

struct object objects[OBJECTS];
u32 events[64];

extern u32 (*const functions[])(struct object *, u32);
extern const u32 functions_len;

static NOINLINE u32 pass(u32 number) {
    u32 sum = number, stride = number * 2 + 1, slots = 1;
    while (slots < functions_len) slots *= 2;
    for (u32 i = 0; i < slots; i++) {
        u32 at = (i * stride + number * 77) & (slots - 1);
        if (at >= functions_len) continue;
        sum += functions[at](&objects[(at + number * 5) % OBJECTS], sum);
    }
    return sum;
}

void guest_main(u32 repeat) {
    for (u32 i = 0; i < OBJECTS; i++) {
        struct object *o = &objects[i];
        o->a = i, o->b = i * 7, o->c = i ^ 0x155, o->d = ~i;
        o->flags = i * 2654435761u >> 20;
        o->next = &objects[(i * 389 + 1) % OBJECTS];
        for (u32 k = 0; k < sizeof o->name; k++) o->name[k] = 'a' + (i + k) % 26;
    }
    mark("prepare", 0);
    mark("first", pass(0));
    u32 sum = 0;
    for (u32 r = 0; r < 16; r++) sum += pass(1 + r);
    mark("warm", sum);
    for (u32 r = 0; r < repeat; r++) sum = sum * 31 + pass(17 + r);
    mark("wide", sum);
}

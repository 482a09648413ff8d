/*
 * The registers of a thread at a trap: what the kernel saves on entry, and what a program's software exception handler is
 * given and may hand back.
 */
#ifndef LIB_UREG_H
#define LIB_UREG_H

#include <stdint.h>

struct ureg {
    uint32_t cause; /* the trap's vector */
    uint32_t cr2;   /* the address a page fault was about */
    uint32_t ds, es, fs, gs;
    uint32_t edi, esi, ebp, unused_esp, ebx, edx, ecx, eax;
    uint32_t error_code;
    uint32_t eip, cs, eflags;
    uint32_t esp, ss; /* present only when the trap came from user mode */
};

enum {
    TRAP_DIVIDE = 0,
    TRAP_DEBUG = 1,
    TRAP_BREAKPOINT = 3,
    TRAP_OVERFLOW = 4,
    TRAP_BOUND = 5,
    TRAP_OPCODE = 6,
    TRAP_NO_FPU = 7,
    TRAP_SEGMENT = 11,
    TRAP_STACK = 12,
    TRAP_PROTECTION = 13,
    TRAP_PAGE = 14,
    TRAP_FPU = 16,
    TRAP_ALIGNMENT = 17,
    TRAP_SIMD = 19,
};

#endif

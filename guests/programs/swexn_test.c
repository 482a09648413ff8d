/* A thread repairs its own page fault, and gives itself registers. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096, TRAPS_EXPECTED = 2 };
#define MISSING ((volatile int *)0x40000000)

static char stack[4096];
static int traps;

static void handler(void *arg, struct ureg *registers)
{
    assert(arg == &traps);
    assert(registers->cause == TRAP_PAGE && registers->cr2 == (unsigned)MISSING);
    assert(new_pages((void *)MISSING, PAGE) == 0);
    traps++;
    swexn(stack + sizeof stack, handler, arg, registers); /* and try again */
    panic("swexn returned");
}

static int kernel_registers(void)
{
    struct ureg registers = {.cs = 0x08, .ss = 0x10, .ds = 0x10, .es = 0x10, .eflags = 0x202};
    return swexn(NULL, NULL, NULL, &registers);
}

int main(void)
{
    assert(swexn(stack + sizeof stack, handler, &traps, NULL) == 0);
    *MISSING = 5;
    assert(*MISSING == 5 && traps == 1);
    remove_pages((void *)MISSING);
    assert(*MISSING == 0 && traps == TRAPS_EXPECTED);
    assert(kernel_registers() < 0);
    assert(swexn(NULL, NULL, NULL, (struct ureg *)1) < 0);
    assert(swexn(NULL, NULL, NULL, NULL) == 0);
    printf("swexn_test: ok\n");
    return 0;
}

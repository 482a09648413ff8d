/* Two threads ask for the same page: one gets it. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096 };
#define WANTED ((void *)0x30000000)

static volatile int successes;
static struct spawn_stack stack;

static void ask(void)
{
    if (new_pages(WANTED, PAGE) == 0)
        successes++;
}

static void other(void)
{
    ask();
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    ask();
    assert(successes <= 1);
    vanish();
}

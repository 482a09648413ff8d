/* Two threads ask for a page each, where no page has been before: both get theirs. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096 };
#define MINE ((void *)0x30000000)
#define YOURS ((void *)0x30001000)

static struct spawn_stack stack;

static void other(void)
{
    assert(new_pages(YOURS, PAGE) == 0);
    vanish();
}

int main(void)
{
    SPAWN(stack, other);
    assert(new_pages(MINE, PAGE) == 0);
    vanish();
}

/* A parent vanishes while its child asks for memory. */
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096 };
#define WANTED ((void *)0x30000000)

int main(void)
{
    if (fork() != 0)
        vanish();
    assert(new_pages(WANTED, PAGE) == 0);
    vanish();
}

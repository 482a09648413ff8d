/* A parent waits for the child that is just vanishing. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

int main(void)
{
    int child = fork();
    if (child == 0)
        vanish();
    assert(wait(NULL) == child);
    vanish();
}

/* Forks until memory is out, again and again: what the children used comes back. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static int bomb(void)
{
    int children = 0;
    for (;; children++) {
        int child = fork();
        if (child < 0)
            break;
        if (child == 0)
            vanish();
    }
    for (int i = 0; i < children; i++)
        assert(wait(NULL) > 0);
    assert(wait(NULL) < 0);
    return children;
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        assert(bomb() > 10);
    printf("fork_bomb_test: ok\n");
    return 0;
}

/*
 * Forks until memory is out, twice: no fewer children the second time, so all that they used came back. (More there may be, if
 * an orphan of an earlier program has ended meanwhile.)
 */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { CHILDREN_MAX = 1000 };

static int tids[CHILDREN_MAX];

static int bomb(void)
{
    int children = 0, never = 0;
    while ((tids[children] = fork()) > 0)
        assert(++children < CHILDREN_MAX);
    if (tids[children] == 0) {
        deschedule(&never);
        vanish();
    }
    for (int i = 0; i < children; i++)
        while (make_runnable(tids[i]) < 0)
            yield(tids[i]); /* it has not come that far yet */
    for (int i = 0; i < children; i++)
        assert(wait(NULL) > 0);
    assert(wait(NULL) < 0);
    return children;
}

int main(void)
{
    int first = bomb();
    assert(first > 10);
    assert(bomb() >= first);
    printf("fork_bomb_test: ok\n");
    return 0;
}

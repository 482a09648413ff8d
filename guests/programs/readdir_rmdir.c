/* The same in the closed tree, whose callers hold a mutex. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

int main(void)
{
    char names[32];
    assert(create("/parent") == 0 && create("/child") == 0);
    if (fork() == 0) {
        assert(unlink("/child") == 0);
        vanish();
    }
    assert(readdir("/", sizeof names, names) == 0);
    assert(wait(NULL) > 0);
    assert(unlink("/parent") == 0);
    vanish();
}

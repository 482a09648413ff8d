/* A directory and what is in it are removed at the same time: the directory may have to wait for its turn. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

int main(void)
{
    assert(create("dir1") == 0 && create("dir1/dir1_1") == 0);
    if (fork() == 0) {
        unlink("dir1/dir1_1");
        vanish();
    }
    unlink("dir1");
    assert(wait(NULL) > 0);
    unlink("dir1/dir1_1");
    unlink("dir1");
    vanish();
}

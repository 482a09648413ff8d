/* A directory is listed while one of its entries is removed: the others are seen in any case. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static const char *const months[] = {"Jan", "Feb", "Mar", "Apr"};

int main(void)
{
    char names[32];
    for (int i = 0; i < 4; i++)
        assert(create(months[i]) == 0);
    if (fork() == 0) {
        assert(unlink("Feb") == 0);
        vanish();
    }
    assert(readdir("", sizeof names, names) == 0);
    assert(wait(NULL) > 0);
    for (const char *name = names; *name; name += 4)
        printf("%s ", name);
    printf("\n");
    assert(unlink("Jan") == 0 && unlink("Mar") == 0 && unlink("Apr") == 0);
    vanish();
}

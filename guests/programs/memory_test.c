/* new_pages and remove_pages: what is refused, what is zeroed, what comes back. */
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096 };
#define BASE ((char *)0x50000000)

static int pages_available(void)
{
    int n = 0;
    while (new_pages(BASE + n * PAGE, PAGE) == 0)
        n++;
    for (int i = 0; i < n; i++)
        assert(remove_pages(BASE + i * PAGE) == 0);
    return n;
}

int main(void)
{
    assert(new_pages(BASE + 1, PAGE) < 0);
    assert(new_pages(BASE, PAGE - 1) < 0);
    assert(new_pages(BASE, 0) < 0);
    assert(new_pages(BASE, -PAGE) < 0);
    assert(new_pages((void *)0x100000, PAGE) < 0);
    assert(new_pages((void *)0xfffff000, 2 * PAGE) < 0);
    assert(new_pages((void *)0x01000000, PAGE) < 0);
    assert(remove_pages(BASE) < 0);

    assert(new_pages(BASE, 3 * PAGE) == 0);
    assert(new_pages(BASE + 2 * PAGE, PAGE) < 0);
    assert(new_pages(BASE - PAGE, 2 * PAGE) < 0);
    for (int i = 0; i < 3 * PAGE; i += 512) {
        assert(BASE[i] == 0);
        BASE[i] = 1;
    }
    assert(remove_pages(BASE + PAGE) < 0);

    int status, child = fork();
    if (child == 0) {
        assert(BASE[0] == 1 && remove_pages(BASE) == 0);
        vanish();
    }
    assert(wait(&status) == child && BASE[0] == 1);
    assert(remove_pages(BASE) == 0);
    assert(new_pages(BASE, PAGE) == 0 && BASE[0] == 0);
    assert(remove_pages(BASE) == 0);

    int pages = pages_available();
    assert(pages > 100 && pages_available() >= pages); /* more if an orphan has ended meanwhile */
    printf("memory_test: ok\n");
    return 0;
}

/* One gives pages back, of which the other's processor must be told by an interrupt, while the other touches pages of its
 * own: about 30,000 instructions. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "rockfall_test.h"

#define PAGE 4096
#define PAGES 2

static char *given, *touched;

static char *map(void)
{
    char *pages = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(pages != MAP_FAILED);
    return pages;
}

static void fill(char *pages, char with)
{
    for (int page = 0; page < PAGES; page++)
        pages[page * PAGE] = with;
}

static void setup(void)
{
    char *first = map();
    fill(first, 1);
    expect(munmap(first, PAGES * PAGE) == 0);
    given = map();
    touched = map();
    fill(given, 1);
}

static void give(void)
{
    expect(munmap(given, PAGES * PAGE) == 0);
}

static void touch(void)
{
    fill(touched, 2);
}

static void check(void)
{
    for (int page = 0; page < PAGES; page++)
        expect(touched[page * PAGE] == 2);
}

const struct rockfall_test rockfall_test = {setup, {give, touch}, check};

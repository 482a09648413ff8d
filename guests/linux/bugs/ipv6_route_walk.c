/* The table of routes is read in two pieces while the reader goes away, and another walks over it. */
#include <fcntl.h>
#include <unistd.h>

#include "rockfall_test.h"

static int readers[2];

static void setup(void)
{
    char line[160];
    for (int i = 0; i < 2; i++) {
        readers[i] = open("/proc/net/ipv6_route", O_RDONLY);
        expect(readers[i] >= 0 && read(readers[i], line, sizeof line) >= 0);
    }
}

static void first(void)
{
    char lines[512];
    expect(read(readers[0], lines, sizeof lines) >= 0);
    expect(close(readers[0]) == 0);
}

static void second(void)
{
    char lines[512];
    expect(read(readers[1], lines, sizeof lines) >= 0);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

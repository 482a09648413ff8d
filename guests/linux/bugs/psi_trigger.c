/* A trigger for pressure is written to a file of a control group while the group goes away. Boot with psi=1. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

#define TRIGGER "some 500000 1000000"

static int pressure;

static int prepare(void)
{
    expect(mkdir("/tmp/groups/one", 0755) == 0);
    return open("/tmp/groups/one/memory.pressure", O_RDWR);
}

static void setup(void)
{
    expect(mkdir("/tmp/groups", 0755) == 0);
    expect(mount("none", "/tmp/groups", "cgroup2", 0, NULL) == 0);
    int warm = prepare();
    expect(warm >= 0 && write(warm, TRIGGER, sizeof TRIGGER) > 0);
    close(warm);
    expect(rmdir("/tmp/groups/one") == 0);
    pressure = prepare();
    expect(pressure >= 0);
}

static void first(void)
{
    expect(write(pressure, TRIGGER, sizeof TRIGGER) > 0 || errno == ENODEV || errno == EOPNOTSUPP);
}

static void second(void) { expect(rmdir("/tmp/groups/one") == 0); }

static void check(void) { expect(close(pressure) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

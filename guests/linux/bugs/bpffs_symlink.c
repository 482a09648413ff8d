/* A symbolic link of a bpf file system is followed, without locks, while it is removed. */
#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

static void setup(void)
{
    struct stat status;
    expect(mkdir("/tmp/bpf", 0755) == 0);
    expect(mount("bpf", "/tmp/bpf", "bpf", 0, NULL) == 0);
    expect(mkdir("/tmp/bpf/folder", 0755) == 0);
    expect(symlink("folder", "/tmp/bpf/warm") == 0);
    expect(stat("/tmp/bpf/warm", &status) == 0 && unlink("/tmp/bpf/warm") == 0);
    expect(symlink("folder", "/tmp/bpf/link") == 0);
    expect(stat("/tmp/bpf/link", &status) == 0);
}

static void first(void)
{
    struct stat status;
    expect(stat("/tmp/bpf/link", &status) == 0 || errno == ENOENT);
}

static void second(void) { expect(unlink("/tmp/bpf/link") == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

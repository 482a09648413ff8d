/*
 * Two groups change what they watch of one file at the same time: one begins to watch for what the other no longer wants.
 * Afterwards both must hear what they asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

#define FILE_NAME "/tmp/watched"

static int file, groups[2];

static void setup(void)
{
    file = open(FILE_NAME, O_CREAT | O_RDWR, 0644);
    for (int i = 0; i < 2; i++)
        groups[i] = inotify_init1(IN_NONBLOCK);
    expect(file >= 0 && groups[0] >= 0 && groups[1] >= 0);
    for (int round = 0; round < 2; round++) {
        expect(inotify_add_watch(groups[0], FILE_NAME, round ? IN_ATTRIB : IN_MODIFY) > 0);
        expect(inotify_add_watch(groups[1], FILE_NAME, round ? IN_MODIFY : IN_ATTRIB) > 0);
    }
}

static void first(void) { expect(inotify_add_watch(groups[0], FILE_NAME, IN_MODIFY) > 0); }
static void second(void) { expect(inotify_add_watch(groups[1], FILE_NAME, IN_ATTRIB) > 0); }

static void check(void)
{
    char events[256];
    expect(write(file, "x", 1) == 1);
    expect(read(groups[0], events, sizeof events) > 0);
    expect(fchmod(file, 0600) == 0);
    expect(read(groups[1], events, sizeof events) > 0);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

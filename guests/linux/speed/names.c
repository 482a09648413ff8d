/* One opens and removes a file while another renames one beside it: about 20,000 instructions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

#define FOLDER "/tmp/names"

static void remove_one(void)
{
    int file = open(FOLDER "/one", O_RDONLY);
    expect(file >= 0 && close(file) == 0);
    expect(unlink(FOLDER "/one") == 0);
}

static void move_two(void)
{
    expect(rename(FOLDER "/two", FOLDER "/three") == 0);
}

static void make(const char *name)
{
    int file = open(name, O_CREAT | O_WRONLY, 0644);
    expect(file >= 0 && close(file) == 0);
}

static void setup(void)
{
    expect(mkdir(FOLDER, 0755) == 0);
    for (int round = 0; round < 2; round++) {
        make(FOLDER "/one");
        make(FOLDER "/two");
        if (round == 0) {
            remove_one();
            move_two();
            expect(unlink(FOLDER "/three") == 0);
        }
    }
}

static void check(void)
{
    struct stat status;
    expect(stat(FOLDER "/one", &status) != 0 && stat(FOLDER "/two", &status) != 0);
    expect(stat(FOLDER "/three", &status) == 0 && status.st_nlink == 1);
}

const struct rockfall_test rockfall_test = {setup, {remove_one, move_two}, check};

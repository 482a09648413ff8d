/* Two threads make, rename and remove files in one directory of a tmpfs while they list it: no call may fail that has no
 * reason to, and at the end the directory is as empty as it looks. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

#define ROUNDS 4
#define FOLDER "/tmp/directory"

static int winners;

static void setup(void)
{
    expect(mkdir(FOLDER, 0755) == 0);
}

static int entries(void)
{
    DIR *folder = opendir(FOLDER);
    int count = 0;
    if (!folder)
        return -1;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2;
}

static void work(int who)
{
    char mine[64], moved[64];
    snprintf(mine, sizeof mine, FOLDER "/new-%d", who);
    snprintf(moved, sizeof moved, FOLDER "/old-%d", who);
    for (int round = 0; round < ROUNDS; round++) {
        int file = open(mine, O_CREAT | O_EXCL | O_WRONLY, 0644);
        expect(file >= 0);
        close(file);
        expect(rename(mine, moved) == 0);
        int seen = entries();
        expect(seen >= 1 && seen <= 3);
        expect(unlink(moved) == 0);
    }
    /* Both want the same name; exactly one gets it. */
    if (mkdir(FOLDER "/prize", 0755) == 0)
        __atomic_fetch_add(&winners, 1, __ATOMIC_SEQ_CST);
    else
        expect(errno == EEXIST);
}

static void one(void)
{
    work(1);
}

static void two(void)
{
    work(2);
}

static void check(void)
{
    struct stat folder;
    expect(winners == 1);
    expect(rmdir(FOLDER "/prize") == 0);
    expect(entries() == 0);
    expect(stat(FOLDER, &folder) == 0 && folder.st_nlink == 2);
    expect(rmdir(FOLDER) == 0);
}

const struct rockfall_test rockfall_test = {setup, {one, two}, check};

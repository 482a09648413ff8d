/* Two append to one file through descriptors of their own: about 4,000 instructions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rockfall_test.h"

#define FILE_NAME "/tmp/append"

static int first_file, second_file;

static void setup(void)
{
    first_file = open(FILE_NAME, O_CREAT | O_APPEND | O_WRONLY, 0644);
    second_file = open(FILE_NAME, O_APPEND | O_WRONLY);
    expect(write(first_file, "0\n", 2) == 2 && write(second_file, "0\n", 2) == 2);
}

static void first(void)
{
    expect(write(first_file, "one\n", 4) == 4);
}

static void second(void)
{
    expect(write(second_file, "two\n", 4) == 4);
}

static void check(void)
{
    struct stat status;
    expect(fstat(first_file, &status) == 0 && status.st_size == 12);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

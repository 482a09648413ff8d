/*
 * The test's side of a module: opens its device once for each body, so that they share no descriptor, and calls its
 * functions by number.
 */
#ifndef ROCKFALL_MODULE_TEST_H
#define ROCKFALL_MODULE_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rockfall_test.h"

static int rockfall_devices[2];

static void open_device(const char *path)
{
    for (int i = 0; i < 2; i++) {
        rockfall_devices[i] = open(path, O_RDWR | O_CLOEXEC);
        expect(rockfall_devices[i] >= 0);
    }
}

/* Calls function `number` for body 0 or 1; what it returns, an error as a negative number. */
static inline long call_with(int body, unsigned int number, const void *argument)
{
    long result = ioctl(rockfall_devices[body], 0x5200 + number, argument);
    return result < 0 ? -errno : result;
}

static inline long call(int body, unsigned int number)
{
    return call_with(body, number, 0);
}

#endif

/* One submits a request while the other, in user space, changes the length in it. */
#include "rockfall_module_test.h"

enum { SUBMIT };

static struct {
    volatile unsigned long length;
    char text[64];
} request = {8, "a request"};

static void setup(void)
{
    open_device("/dev/user_copy_twice");
    expect(call_with(0, SUBMIT, &request) == 0);
}

static void first(void)
{
    long result = call_with(0, SUBMIT, &request);
    expect(result == 0 || result == -EINVAL);
}

static void second(void) { request.length = 64; }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

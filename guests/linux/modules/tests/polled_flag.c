/* One waits for work, the other brings it. */
#include "rockfall_module_test.h"

enum { AWAIT, BRING };

static void setup(void)
{
    open_device("/dev/polled_flag");
}

static void first(void) { expect(call(0, AWAIT) == 0); }
static void second(void) { expect(call(1, BRING) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

/* One queues work on the object while the other takes it away. */
#include "rockfall_module_test.h"

enum { FILL, QUEUE, LEAVE, LOOK };

static void setup(void)
{
    open_device("/dev/work_after_free");
    expect(call(0, FILL) == 0 && call(0, QUEUE) == 0);
}

static void first(void) { expect(call(0, QUEUE) == 0); }
static void second(void) { expect(call(1, LEAVE) == 0); }
static void check(void) { expect(call(0, LOOK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

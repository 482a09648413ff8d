/* Both count on processor 0, one by way of a task of the module. */
#include "rockfall_module_test.h"

enum { COUNT, LET_COUNT, LOOK };

static void setup(void)
{
    open_device("/dev/per_cpu_sleep");
    expect(call(0, COUNT) == 0 && call(1, LET_COUNT) == 0);
}

static void first(void) { expect(call(0, COUNT) == 0); }
static void second(void) { expect(call(1, LET_COUNT) == 0); }
static void check(void) { expect(call(0, LOOK) == 4); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

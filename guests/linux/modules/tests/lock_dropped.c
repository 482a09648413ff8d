/* One walks over the list while the other takes an entry out. */
#include "rockfall_module_test.h"

enum { FILL, WALK, REMOVE_SECOND };

static void setup(void)
{
    open_device("/dev/lock_dropped");
    expect(call(0, FILL) == 0 && call(0, WALK) == 0 && call(1, REMOVE_SECOND) == 0);
    expect(call(0, FILL) == 0);
}

static void first(void) { expect(call(0, WALK) == 0); }
static void second(void) { expect(call(1, REMOVE_SECOND) == 0); }
static void check(void) { expect(call(0, WALK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

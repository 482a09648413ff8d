/* One arms a timer and updates while it may fire; the other updates too. */
#include "rockfall_module_test.h"

enum { ARM, UPDATE, LOOK };

static void setup(void) { open_device("/dev/lock_in_timer"); }

static void first(void)
{
    expect(call(0, ARM) == 0);
    expect(call(0, UPDATE) == 0);
}

static void second(void) { expect(call(1, UPDATE) == 0); }
static void check(void) { expect(call(0, LOOK) == 2); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

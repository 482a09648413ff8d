/* Both need it; it is made once. */
#include "rockfall_module_test.h"

enum { NEED, LOOK };

static void setup(void)
{
    open_device("/dev/made_twice");
    expect(call(0, LOOK) == 0);
}

static void first(void) { expect(call(0, NEED) == 0); }
static void second(void) { expect(call(1, NEED) == 0); }
static void check(void) { expect(call(0, LOOK) == 1); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

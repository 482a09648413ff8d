/* One publishes the object while the other looks at it. */
#include "rockfall_module_test.h"

enum { PUBLISH, USE };

static void setup(void)
{
    open_device("/dev/publication");
    expect(call(1, USE) == 0);
}

static void first(void) { expect(call(0, PUBLISH) == 0); }
static void second(void) { expect(call(1, USE) == 0); }
static void check(void) { expect(call(0, USE) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

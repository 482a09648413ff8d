/* One transfers to the right, one to the left; nothing is lost, and both come back. */
#include "rockfall_module_test.h"

enum { TO_RIGHT, TO_LEFT, SUM };

static void setup(void)
{
    open_device("/dev/abba");
    expect(call(0, TO_RIGHT) == 0 && call(1, TO_LEFT) == 0);
}

static void first(void) { expect(call(0, TO_RIGHT) == 0); }
static void second(void) { expect(call(1, TO_LEFT) == 0); }
static void check(void) { expect(call(0, SUM) == 200); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

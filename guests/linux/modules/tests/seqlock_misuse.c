/* One changes the pair while the other reads it. */
#include "rockfall_module_test.h"

enum { CHANGE, LOOK };

static void setup(void)
{
    open_device("/dev/seqlock_misuse");
    expect(call(0, CHANGE) == 0 && call(1, LOOK) == 0);
}

static void first(void) { expect(call(0, CHANGE) == 0); }
static void second(void) { expect(call(1, LOOK) == 0); }
static void check(void) { expect(call(0, LOOK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

/* One changes the pair while the other interrupts it. */
#include "rockfall_module_test.h"

enum { CHANGE, INTERRUPT, LOOK };

static void setup(void)
{
    open_device("/dev/seqlock_in_interrupt");
    expect(call(0, CHANGE) == 0);
}

static void first(void) { expect(call(0, CHANGE) == 0); }
static void second(void) { expect(call(1, INTERRUPT) == 0); }
static void check(void) { expect(call(0, LOOK) == 2); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

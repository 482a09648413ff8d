/* One updates while the other interrupts it. */
#include "rockfall_module_test.h"

enum { UPDATE, INTERRUPT, LOOK };

static void setup(void)
{
    open_device("/dev/lock_in_interrupt");
    expect(call(0, UPDATE) == 0);
}

static void first(void) { expect(call(0, UPDATE) == 0); }
static void second(void) { expect(call(1, INTERRUPT) == 0); }
static void check(void) { expect(call(0, LOOK) == 3); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

/* One updates with interrupts off while the other asks for something. */
#include "rockfall_module_test.h"

enum { UPDATE, ASK, LOOK };

static void setup(void)
{
    open_device("/dev/abba_interrupt");
    expect(call(0, UPDATE) == 0);
}

static void first(void) { expect(call(0, UPDATE) == 0); }
static void second(void) { expect(call(1, ASK) == 0); }
static void check(void) { expect(call(0, LOOK) == 31); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

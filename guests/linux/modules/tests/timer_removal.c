/* One arms the timer; the other takes it away as soon as it has fired. */
#include "rockfall_module_test.h"

enum { ARM, REMOVE_WHEN_FIRED, LOOK };

static void setup(void)
{
    open_device("/dev/timer_removal");
}

static void first(void) { expect(call(0, ARM) == 0); }
static void second(void) { expect(call(1, REMOVE_WHEN_FIRED) == 0); }
static void check(void) { expect(call(0, LOOK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

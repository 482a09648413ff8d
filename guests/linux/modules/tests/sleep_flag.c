/* One sleeps until the other has something for it. */
#include "rockfall_module_test.h"

enum { AWAIT, WAKE };

static void setup(void)
{
    open_device("/dev/sleep_flag");
}

static void first(void) { expect(call(0, AWAIT) == 0); }
static void second(void) { expect(call(1, WAKE) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

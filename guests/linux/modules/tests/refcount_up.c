/* One uses the object while the other gives it up. */
#include "rockfall_module_test.h"

enum { FILL, USE, GIVE_UP };

static void setup(void)
{
    open_device("/dev/refcount_up");
    expect(call(0, FILL) == 0 && call(0, USE) == 0 && call(1, GIVE_UP) == 0);
    expect(call(0, FILL) == 0);
}

static void first(void) { expect(call(0, USE) == 0); }
static void second(void) { expect(call(1, GIVE_UP) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

/* One uses the pointer while the other clears it. */
#include "rockfall_module_test.h"

enum { SET, USE, CLEAR };

static void setup(void)
{
    open_device("/dev/reread");
    expect(call(0, SET) == 0 && call(0, USE) == 0);
}

static void first(void) { expect(call(0, USE) == 0); }
static void second(void) { expect(call(1, CLEAR) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

/* Two processors add one each; the counter has two more. */
#include "rockfall_module_test.h"

enum { ADD, LOOK };

static void setup(void)
{
    open_device("/dev/lost_update");
    expect(call(0, ADD) == 0 && call(1, ADD) == 0);
}

static void first(void) { expect(call(0, ADD) == 0); }
static void second(void) { expect(call(1, ADD) == 0); }
static void check(void) { expect(call(0, LOOK) == 4); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

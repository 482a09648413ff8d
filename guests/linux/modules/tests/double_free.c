/* Both give the object back; the allocator gives it to one only. */
#include "rockfall_module_test.h"

enum { FILL, GIVE_BACK, LOOK };

static void setup(void)
{
    open_device("/dev/double_free");
    expect(call(0, FILL) == 0 && call(1, GIVE_BACK) == 0);
    expect(call(0, FILL) == 0);
}

static void first(void) { expect(call(0, GIVE_BACK) == 0); }
static void second(void) { expect(call(1, GIVE_BACK) == 0); }
static void check(void) { expect(call(0, LOOK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

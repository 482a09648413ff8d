/* Both finish; one may pass. */
#include "rockfall_module_test.h"

enum { FINISH, LOOK };

static void setup(void)
{
    open_device("/dev/double_completion");
    expect(call(0, LOOK) == 0);
}

static void first(void) { expect(call(0, FINISH) == 0); }
static void second(void) { expect(call(1, FINISH) == 0); }
static void check(void) { expect(call(0, LOOK) == 1); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

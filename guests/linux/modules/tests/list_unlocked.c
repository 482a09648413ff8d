/* Both add an entry; there are two. */
#include "rockfall_module_test.h"

enum { ADD_FIRST, ADD_SECOND, LOOK };

static void setup(void)
{
    open_device("/dev/list_unlocked");
    expect(call(0, LOOK) == 0);
}

static void first(void) { expect(call(0, ADD_FIRST) == 0); }
static void second(void) { expect(call(1, ADD_SECOND) == 0); }
static void check(void) { expect(call(0, LOOK) == 2); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

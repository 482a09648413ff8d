/* One takes a piece of work, the other steals two; there are two. */
#include "rockfall_module_test.h"

enum { TAKE, STEAL };

static void setup(void)
{
    open_device("/dev/deque");
}

static void first(void) { expect(call(0, TAKE) == 0); }
static void second(void) { expect(call(1, STEAL) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

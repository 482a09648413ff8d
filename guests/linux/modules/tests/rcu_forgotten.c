/* One reads while the other replaces what is read. */
#include "rockfall_module_test.h"

enum { READ, REPLACE };

static void setup(void)
{
    open_device("/dev/rcu_forgotten");
    expect(call(0, READ) == 0 && call(1, REPLACE) == 0);
}

static void first(void) { expect(call(0, READ) == 0); }
static void second(void) { expect(call(1, REPLACE) == 0); }
static void check(void) { expect(call(0, READ) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

/* Two processors add one each, one after the other. */
#include "rockfall_module_test.h"

enum { ADD, LOOK };

static void setup(void)
{
    open_device("/dev/bakery");
    expect(call_with(0, ADD, (void *)0) == 0 && call_with(1, ADD, (void *)1) == 0);
}

static void first(void) { expect(call_with(0, ADD, (void *)0) == 0); }
static void second(void) { expect(call_with(1, ADD, (void *)1) == 0); }
static void check(void) { expect(call(0, LOOK) == 4); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

/* Two claim the same thing: one of them has it, or none. */
#include "rockfall_module_test.h"

enum { CLAIM };

static long has[2];

static void setup(void)
{
    open_device("/dev/dekker");
}

static void first(void) { has[0] = call_with(0, CLAIM, (void *)0); }
static void second(void) { has[1] = call_with(1, CLAIM, (void *)1); }
static void check(void) { expect(has[0] + has[1] < 2); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

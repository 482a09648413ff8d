/* One announces something new; the other looks whether it knows what was announced. */
#include "rockfall_module_test.h"

enum { ANNOUNCE, LOOK };

static void setup(void) { open_device("/dev/call_not_awaited"); }
static void first(void) { expect(call(0, ANNOUNCE) == 0); }
static void second(void) { expect(call(1, LOOK) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

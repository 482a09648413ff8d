/* Two add to one number again and again: a few hundred instructions, and more schedules than anybody can run. */
#include "rockfall_test.h"

#define ADDITIONS 16

static unsigned long sum;

static void add(void)
{
    for (int i = 0; i < ADDITIONS; i++)
        __atomic_fetch_add(&sum, 1, __ATOMIC_SEQ_CST);
}

static void first(void)
{
    add();
}

static void second(void)
{
    add();
}

static void check(void)
{
    expect(sum == 2 * ADDITIONS);
}

const struct rockfall_test rockfall_test = {0, {first, second}, check};

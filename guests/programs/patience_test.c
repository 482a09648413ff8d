/* One thread lets others go first many times, and then takes its turn. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

#define TIMES 12

static volatile int turn;
static struct spawn_stack stack;

static void patient(void)
{
    for (int i = 0; i < TIMES; i++)
        yield(-1);
    turn = 1;
    vanish();
}

int main(void)
{
    SPAWN(stack, patient);
    int before = turn;
#ifdef FAULT_TURN_READ_TWICE
    assert(turn == before);
#else
    assert(before == 0 || before == 1);
#endif
    vanish();
}

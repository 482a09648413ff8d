/*
 * System calls whose results depend on which thread makes its call first, though no memory of the program does: who gets the
 * page, whether there is somebody to wake, whether the other is still there to yield to.
 */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"

#define PAGE ((void *)0x30000000)

volatile int main_result[4], other_result[2];
static volatile int awake;
static int main_tid;
static struct spawn_stack stack;

static void other(void)
{
    other_result[0] = new_pages(PAGE, 4096);
    deschedule((const int *)&awake);
    other_result[1] = yield(main_tid);
    vanish();
}

int main(void)
{
    main_tid = gettid();
    int tid = SPAWN(stack, other);
    main_result[0] = new_pages(PAGE, 4096);
    main_result[1] = make_runnable(tid);
    awake = 1;
    main_result[2] = make_runnable(tid);
    main_result[3] = yield(tid);
    vanish();
}

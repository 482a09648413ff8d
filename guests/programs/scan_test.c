/* One thread goes through a text that another gives up: it is freed from its beginning, however far the first has come. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/malloc.h"
#include "../threadlib/mutex.h"

enum { LENGTH = 16 };

static struct mutex lock = MUTEX_INIT;
static char *volatile at; /* NULL: given up */
static volatile int taken;
static struct spawn_stack stack;

static void advance(void)
{
#ifndef FAULT_CURSOR_TORN
    mutex_lock(&lock);
#endif
    if (at) {
        at++;
        taken++;
    }
#ifndef FAULT_CURSOR_TORN
    mutex_unlock(&lock);
#endif
}

static void give_up(void)
{
    mutex_lock(&lock);
    char *text = at - taken;
    at = NULL;
    mutex_unlock(&lock);
    free(text);
}

static void scanner(void)
{
    advance();
    vanish();
}

int main(void)
{
    at = malloc(LENGTH);
    SPAWN(stack, scanner);
    give_up();
    vanish();
}

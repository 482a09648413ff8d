/* Two threads share a message; whoever is done with it last frees it. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/atomic.h"
#include "../threadlib/malloc.h"

struct message {
    int length;
};

static struct message *message;
static volatile int users = 2;
static struct spawn_stack stack;

static void drop(void)
{
#ifdef FAULT_LAST_USER_TWICE
    users--;
    if (users == 0)
        free(message);
#else
    if (atomic_fetch_sub(&users, 1) == 1)
        free(message);
#endif
}

static void other(void)
{
    drop();
    vanish();
}

int main(void)
{
    message = malloc(sizeof *message);
    SPAWN(stack, other);
    drop();
    vanish();
}

/* One thread prepares a message and publishes its address; another reads it as soon as there is an address. */
#include <stddef.h>

#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

struct message {
    int length, checksum;
};

static struct message message;
static struct message *volatile published;
static struct spawn_stack stack;

static void publisher(void)
{
#ifdef FAULT_TORN_PUBLISH
    published = &message;
    asm volatile("" : : : "memory");
    message.length = 7;
    message.checksum = 7;
#else
    message.length = 7;
    message.checksum = 7;
    asm volatile("" : : : "memory");
    published = &message;
#endif
    vanish();
}

int main(void)
{
    SPAWN(stack, publisher);
    yield(-1);
    struct message *m = published;
    if (m)
        assert(m->length == 7 && m->checksum == 7);
    vanish();
}

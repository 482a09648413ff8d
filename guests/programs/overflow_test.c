/* Main says that there is work, and clears a buffer, while another thread works on the stack above it. */
#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

#define BUFFER_WORDS 32

/* What the thread's calls need, and a good deal more; or about half of it, and the rest of them goes into the buffer. */
#ifdef FAULT_STACK_TOO_SMALL
#define STACK_BYTES 48
#else
#define STACK_BYTES 1024
#endif

static struct {
    volatile int buffer[BUFFER_WORDS];
    char stack[STACK_BYTES];
} __attribute__((aligned(16))) room;

static volatile int work;

__attribute__((noinline)) static int deep(int calls)
{
    return calls == 0 ? 0 : deep(calls - 1) + 1;
}

static void worker(void)
{
    if (work)
        assert(deep(4) == 4);
    vanish();
}

int main(void)
{
    spawn(&room + 1, worker);
    work = 1;
    for (int i = 0; i < BUFFER_WORDS; i++)
        room.buffer[i] = 0;
    vanish();
}

/* Programs that do what they must not are killed with status -2, and task_vanish reaches threads wherever they block. */
#include <stddef.h>

#include "../runtime/spawn.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { KILLED = -2 };

static void read_null(void)
{
    asm volatile("movl 0, %%eax" : : : "eax");
}

static void write_kernel(void)
{
    *(volatile int *)0x100000 = 0;
}

static void write_code(void)
{
    *(volatile int *)(void *)write_kernel = 0;
}

static void divide(void)
{
    asm volatile("xorl %%ecx, %%ecx; divl %%ecx" : : : "eax", "ecx", "edx");
}

static void privileged(void)
{
    asm volatile("cli");
}

static void undefined(void)
{
    asm volatile("ud2");
}

static void no_such_call(void)
{
    asm volatile("int $0x99");
}

static void expect_killed(void (*misdeed)(void))
{
    int status, child = fork();
    if (child == 0) {
        misdeed();
        exit(0);
    }
    assert(wait(&status) == child && status == KILLED);
}

static struct spawn_stack stacks[3];

static void sleeps(void)
{
    sleep(1000000);
    vanish();
}

static void descheduled(void)
{
    int reject = 0;
    deschedule(&reject);
    vanish();
}

static void waits(void)
{
    wait(NULL);
    vanish();
}

static void blocked_threads(void)
{
    int status, child = fork();
    if (child == 0) {
        if (fork() == 0) {
            sleep(10);
            exit(0);
        }
        SPAWN(stacks[0], sleeps);
        SPAWN(stacks[1], descheduled);
        SPAWN(stacks[2], waits);
        for (int i = 0; i < 4; i++)
            yield(-1);
        task_vanish(7);
    }
    assert(wait(&status) == child && status == 7);
}

int main(void)
{
    void (*misdeeds[])(void) = {read_null, write_kernel, write_code, divide, privileged, undefined, no_such_call};
    for (unsigned i = 0; i < sizeof misdeeds / sizeof misdeeds[0]; i++)
        expect_killed(misdeeds[i]);
    blocked_threads();
    printf("kill_test: ok\n");
    return 0;
}

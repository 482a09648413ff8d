/* fork, exec, set_status, vanish, wait: who gets which status, and what becomes of orphans. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static int global = 1;

static void separate_memory(void)
{
    int status, child = fork();
    if (child == 0) {
        global = 2;
        exit(global);
    }
    assert(wait(&status) == child && status == 2 && global == 1);
    assert(wait(&status) < 0);
}

static void many_children(void)
{
    int tids = 0, sum = 0, status;
    for (int i = 1; i <= 5; i++) {
        int child = fork();
        assert(child >= 0);
        if (child == 0) {
            for (int n = 0; n < i; n++)
                yield(-1);
            exit(i);
        }
        tids += child;
    }
    for (int i = 1; i <= 5; i++) {
        tids -= wait(&status);
        sum += status;
    }
    assert(tids == 0 && sum == 15);
}

static void orphans(void)
{
    int child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                yield(-1);
                exit(0);
            }
        exit(0);
    }
    assert(wait(NULL) == child);
}

static void execute(void)
{
    char *argv[] = {"echo", "one", "two", NULL};
    int status, child = fork();
    if (child == 0) {
        assert(exec("no such program", argv) < 0);
        exec("echo", argv);
        panic("exec returned");
    }
    assert(wait(&status) == child && status == 2);
}

int main(void)
{
    separate_memory();
    many_children();
    orphans();
    execute();
    printf("life_test: ok\n");
    return 0;
}

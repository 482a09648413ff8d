/* A timer on the processor time of a process is set while a thread of that process, not the first one, executes a program. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rockfall_test.h"

static int victim, timer;

static void *execute(void *unused)
{
    execl("/tests/posix_timer_exec", "posix_timer_exec", "end", (char *)NULL);
    return unused;
}

/* In the process: a second thread executes, which ends the first. */
static void victim_body(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, execute, NULL);
    for (;;)
        pause();
}

/* What was executed has nothing more to do. */
__attribute__((constructor)) static void end_at_once(int count, char **words)
{
    (void)words;
    if (count > 1)
        _exit(EXIT_SUCCESS);
}

static void setup(void)
{
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    clockid_t clock;
    victim = rockfall_process(1, victim_body);
    expect(clock_getcpuclockid(rockfall_process_id(victim), &clock) == 0);
    expect(syscall(SYS_timer_create, clock, &none, &timer) == 0);
}

static void first(void)
{
    struct itimerspec soon = {.it_value = {.tv_sec = 1}};
    expect(syscall(SYS_timer_settime, timer, 0, &soon, NULL) == 0 || errno == ESRCH);
}

static void second(void)
{
    rockfall_release(victim);
    rockfall_await(victim);
}

static void check(void) { expect(syscall(SYS_timer_delete, timer) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

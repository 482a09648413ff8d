/*
 * The frame around a test: makes its threads, pins them, marks start and end for the machine, and turns the outcome into
 * an exit status. Linked with every test that brings no `main` of its own.
 */
#define _GNU_SOURCE
#include "rockfall_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rockfall.h"

static atomic_int failures;
static atomic_int arrived;
static atomic_int ended;
static int threads;
static int cpus;

void say(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rockfall_message(text);
    dprintf(STDOUT_FILENO, "%s\n", text);
}

void rockfall_failed(const char *file, int line, const char *what)
{
    int error = errno;
    const char *name = strrchr(file, '/');
    char text[512];
    failures++;
    name = name ? name + 1 : file;
    snprintf(text, sizeof text, "%s:%d: %s\nerrno: %s", name, line, what, strerror(error));
    rockfall_fails(text);
    dprintf(STDOUT_FILENO, "%s:%d: expected %s (errno: %s)\n", name, line, what, strerror(error));
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    expect(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void *body(void *argument)
{
    int index = (int)(long)argument;
    pin(index % cpus);
    arrived++;
    /* Awake, so that nothing is left to be done for a thread when its turn comes. */
    while (arrived < threads) {
        __builtin_ia32_pause();
        sched_yield();
    }
    rockfall_test_start_of(index, threads);
    rockfall_test.threads[index]();
    rockfall_test_end_of(index, threads);
    /* Whoever comes last looks at what is left, at once: leaving, joining and exiting take far longer than most tests. */
    if (atomic_fetch_add(&ended, 1) + 1 == threads) {
        if (rockfall_test.check)
            rockfall_test.check();
        rockfall_checked();
    }
    return NULL;
}

int main(void)
{
    pthread_t made[ROCKFALL_THREADS_MAX];

    while (threads < ROCKFALL_THREADS_MAX && rockfall_test.threads[threads])
        threads++;
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (rockfall_test.setup)
        rockfall_test.setup();
    for (long i = 0; i < threads; i++) {
        if (pthread_create(&made[i], NULL, body, (void *)i) != 0) {
            say("thread %ld could not be made: %s", i, strerror(errno));
            return EXIT_FAILURE;
        }
    }
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* What a test may ask for: helpers (threads and processes beside the bodies, pinned, waiting until they are let go) and its input. */
#define _GNU_SOURCE
#include "rockfall_test.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rockfall.h"

#define HELPERS_MAX 8

struct helper {
    atomic_int gate; /* 0: waits, 1: let go; in memory that a process shares with us */
    void (*body)(void);
    int cpu;
    pid_t process;
    pthread_t thread;
};

static struct helper *helpers;
static int count;

static struct helper *helper_new(int cpu, void (*body)(void))
{
    if (!helpers) {
        size_t size = HELPERS_MAX * sizeof *helpers;
        helpers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (helpers == MAP_FAILED)
            helpers = NULL;
    }
    expect(helpers && count < HELPERS_MAX);
    if (!helpers || count == HELPERS_MAX)
        exit(EXIT_FAILURE);
    struct helper *helper = &helpers[count];
    helper->body = body;
    helper->cpu = cpu;
    return helper;
}

static void serve(struct helper *helper)
{
    rockfall_pin(helper->cpu);
    while (helper->gate == 0)
        syscall(SYS_futex, &helper->gate, FUTEX_WAIT, 0, NULL, NULL, 0);
    helper->body();
}

static void *thread_body(void *helper)
{
    serve(helper);
    return NULL;
}

int rockfall_thread(int cpu, void (*body)(void))
{
    struct helper *helper = helper_new(cpu, body);
    int error = pthread_create(&helper->thread, NULL, thread_body, helper);
    errno = error;
    expect(error == 0);
    return count++;
}

int rockfall_process(int cpu, void (*body)(void))
{
    struct helper *helper = helper_new(cpu, body);
    helper->process = fork();
    expect(helper->process >= 0);
    if (helper->process == 0) {
        /* A test that ends early leaves nobody behind. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(helper);
        _exit(EXIT_SUCCESS);
    }
    return count++;
}

void rockfall_release(int helper)
{
    helpers[helper].gate = 1;
    syscall(SYS_futex, &helpers[helper].gate, FUTEX_WAKE, 1, NULL, NULL, 0);
}

int rockfall_await(int helper)
{
    int status = 0;
    if (helpers[helper].process == 0)
        pthread_join(helpers[helper].thread, NULL);
    else
        while (waitpid(helpers[helper].process, &status, 0) < 0 && errno == EINTR)
            continue;
    return status;
}

int rockfall_process_id(int helper)
{
    return helpers[helper].process;
}

int rockfall_input(int inputs)
{
    static volatile int input;
    const char *said = getenv("input");
    input = said ? atoi(said) : 0;
    rockfall_call(ROCKFALL_INPUT, (unsigned long)&input, (unsigned long)inputs);
    expect(input >= 0 && input < inputs);
    return input >= 0 && input < inputs ? input : 0;
}

void rockfall_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    expect(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* Signals: sent, queued, blocked, on another stack, by faults with the right address, by timers, and across a fork. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t seen;
static void *volatile fault_address;
static volatile int code;
static sigjmp_buf back;
static char stack[65536];

static void must(int holds, const char *what)
{
    if (!holds) {
        printf("%s does not hold (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

static void count(int signal)
{
    (void)signal;
    /* Floating point in a handler must not disturb what it interrupted. */
    volatile double scratch = seen * 1.5;
    (void)scratch;
    seen++;
}

static void fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    fault_address = info->si_addr;
    code = info->si_code;
    siglongjmp(back, 1);
}

static void on_stack(int signal)
{
    char here;
    (void)signal;
    seen = &here >= stack && &here < stack + sizeof stack;
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    must(sigaction(signal, &action, NULL) == 0, "sigaction");
}

int main(void)
{
    handle(SIGUSR1, count, 0);
    volatile double kept = 1.25;
    for (int i = 0; i < 100; i++) {
        kill(getpid(), SIGUSR1);
        kept = kept + 0.5;
    }
    must(seen == 100 && kept == 51.25, "a hundred signals");

    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    seen = 0;
    raise(SIGUSR1);
    must(seen == 0, "a blocked signal waits");
    sigprocmask(SIG_SETMASK, &old, NULL);
    must(seen == 1, "an unblocked signal comes");

    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    must(sigaltstack(&alternate, NULL) == 0, "sigaltstack");
    handle(SIGUSR2, on_stack, SA_ONSTACK);
    raise(SIGUSR2);
    must(seen == 1, "the handler is on the other stack");

    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)(page + 123) = 1;
        must(0, "a write to a read-only page faults");
    }
    must(fault_address == page + 123 && code == SEGV_ACCERR, "the address of a protection fault");
    munmap(page, 4096);
    if (sigsetjmp(back, 1) == 0) {
        (void)*(volatile char *)(page + 7);
        must(0, "a read of nothing faults");
    }
    must(fault_address == page + 7 && code == SEGV_MAPERR, "the address of a missing page");
    volatile int zero = 0;
    volatile int quotient = 1;
    if (sigsetjmp(back, 1) == 0) {
        quotient = quotient / zero;
        must(0, "a division by zero faults");
    }
    must(code == FPE_INTDIV, "the code of a division by zero");
    if (sigsetjmp(back, 1) == 0) {
        __asm__ volatile("ud2");
        must(0, "an undefined instruction faults");
    }
    must(code == ILL_ILLOPN, "the code of an undefined instruction");
    /* A page that may not be executed. */
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = (char)0xc3;
    if (sigsetjmp(back, 1) == 0) {
        ((void (*)(void))(uintptr_t)page)();
        must(0, "execution of data faults");
    }
    must(fault_address == page && code == SEGV_ACCERR, "the address of executed data");

    seen = 0;
    handle(SIGALRM, count, 0);
    struct itimerval soon = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 2000}}, off = {0};
    setitimer(ITIMER_REAL, &soon, NULL);
    while (seen < 3)
        pause();
    setitimer(ITIMER_REAL, &off, NULL);

    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        for (;;)
            pause();
    }
    int status;
    kill(child, SIGTERM);
    must(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "a killed child");
    return 0;
}

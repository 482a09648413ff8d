/*
 * A concurrency test for a Linux kernel: a C file that defines `rockfall_test`.
 *
 * `setup` runs first, alone. Then every thread body runs once, each in a thread of its own that is pinned to a processor
 * of its own (thread i to processor i, beginning anew when there are fewer processors). All threads are in place before
 * the first of them begins. When all have ended, `check` looks at what is left; whatever is wrong it says with
 * `expect`, and so may the bodies. Pack it with `rockfall linux pack TEST.c`.
 */
#ifndef ROCKFALL_TEST_H
#define ROCKFALL_TEST_H

#define ROCKFALL_THREADS_MAX 8

struct rockfall_test {
    void (*setup)(void);                           /* may be absent */
    void (*threads[ROCKFALL_THREADS_MAX])(void);   /* two or more, from the first on */
    void (*check)(void);                           /* may be absent */
};

extern const struct rockfall_test rockfall_test;

/* A message for the person who runs the test, as for printf. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The test fails unless `condition` holds; `errno` is named with it. */
#define expect(condition) ((condition) ? (void)0 : rockfall_failed(__FILE__, __LINE__, #condition))

void rockfall_failed(const char *file, int line, const char *what);

/*
 * Helpers, made in `setup`: a thread, or a process of its own, on the given processor. It waits until a body (or `setup`) lets it
 * go, then runs its function; it may exit or exec. What a body ends with, such as the death of a process, is done by a helper: the
 * body lets it go and awaits its end. `rockfall_await` returns the wait status of a process, 0 for a thread.
 */
int rockfall_thread(int cpu, void (*body)(void));
int rockfall_process(int cpu, void (*body)(void));
void rockfall_release(int helper);
int rockfall_await(int helper);
int rockfall_process_id(int helper);

/*
 * A test with many inputs: which one this run is about, from 0 to `inputs` - 1. It is asked for at the beginning of `setup`. The
 * kernel's command line says it, `input=NUMBER`; whoever explores may say it anew here, from the same boot: the call tells where the
 * number is (ROCKFALL_INPUT), and what is there afterwards counts.
 */
int rockfall_input(int inputs);

/* Pins the caller to a processor. */
void rockfall_pin(int cpu);

#endif

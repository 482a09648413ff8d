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

#endif

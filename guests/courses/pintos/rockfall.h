/* Tests for Rockfall: few threads of equal priority, and a main thread that waits for all of them. Included by tests.c. */
#ifndef TESTS_THREADS_ROCKFALL_H
#define TESTS_THREADS_ROCKFALL_H

extern test_func test_rockfall_sema;
extern test_func test_rockfall_alarm;
extern test_func test_rockfall_donate;

#define ROCKFALL_TESTS                          \
    {"rockfall-sema", test_rockfall_sema},      \
    {"rockfall-alarm", test_rockfall_alarm},    \
    {"rockfall-donate", test_rockfall_donate},

#endif

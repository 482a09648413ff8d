/* The end of the road: an invariant does not hold. */
#ifndef PANIC_H
#define PANIC_H

void panic(const char *fmt, ...) __attribute__((noreturn, noinline, format(printf, 1, 2)));

#define assert(condition)                                                                                                   \
    ((condition) ? (void)0 : panic("%s:%u: assertion failed: %s", __FILE__, __LINE__, #condition))

#endif

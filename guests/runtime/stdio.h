/* What programs expect to be there: printf, exit, assert. */
#ifndef STDIO_H
#define STDIO_H

void printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void exit(int status) __attribute__((noreturn)); /* ends the calling thread, and with the last one the task */

/* Prints the message and kills the task. */
void panic(const char *fmt, ...) __attribute__((noreturn, noinline, format(printf, 1, 2)));

#define assert(condition)                                                                                                   \
    ((condition) ? (void)0 : panic("%s:%u: assertion failed: %s", __FILE__, __LINE__, #condition))

#endif

/* The system calls of Pebbles. Those that return int give a negative number for an error. */
#ifndef SYSCALL_H
#define SYSCALL_H

#include <stddef.h>

#include "../lib/ureg.h"

/* Life */
int fork(void);                              /* the child's tid; 0 in the child */
int exec(const char *name, char **argv);     /* only in a task of one thread */
void set_status(int status);
void vanish(void) __attribute__((noreturn)); /* ends the calling thread */
void task_vanish(int status) __attribute__((noreturn));
int wait(int *status);                       /* tid of a child task that has ended */

/* Threads */
int gettid(void);
int yield(int tid);                          /* -1: to anyone */
int deschedule(const int *reject);           /* blocks unless *reject is not 0 */
int make_runnable(int tid);
unsigned get_ticks(void);
int sleep(int ticks);
typedef void swexn_handler(void *arg, struct ureg *registers);
int swexn(void *stack_top, swexn_handler *handler, void *arg, struct ureg *new_registers);
void misbehave(int mode);

enum {
    MISBEHAVE_NOT = 0,
    MISBEHAVE_CHILD_FIRST = 1, /* a new thread runs before its creator goes on */
    MISBEHAVE_WOKEN_FIRST = 2, /* so does a thread made runnable */
};

/* Memory */
int new_pages(void *base, int length);
int remove_pages(void *base);

/* Console */
int getchar(void);
int readline(int size, char *buffer);
int print(int length, const char *text);
int set_term_color(int color);
int set_cursor_pos(int row, int column);
int get_cursor_pos(int *row, int *column);

/* Names: "a" and "a/b" in the open tree, "/a" in the closed one */
int create(const char *path);
int unlink(const char *path);                         /* of a directory: only an empty one */
int readdir(const char *root, int size, char *names); /* of "" or "/": each name with its NUL, and a last NUL */

/* Other */
int ls(int size, char *buffer);
void halt(void) __attribute__((noreturn));

#endif

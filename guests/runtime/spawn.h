/* A bare second thread, for tests that want nothing of the thread library. */
#ifndef SPAWN_H
#define SPAWN_H

/* Runs function() in a new thread on that stack; it must end with vanish(). Returns the new thread's tid, or an error. */
int spawn(void *stack_top, void (*function)(void));

/* A stack for one such thread. */
struct spawn_stack {
    char bytes[2048];
} __attribute__((aligned(16)));

#define SPAWN(stack, function) spawn(&(stack) + 1, function)

#endif

/* Threads: create, exit, join. thr_init comes first, while there is one thread. */
#ifndef THR_H
#define THR_H

int thr_init(int stack_size);
int thr_create(void *(*function)(void *), void *arg); /* tid, or negative */
void thr_exit(void *status) __attribute__((noreturn));
int thr_join(int tid, void **status); /* negative if there is no such thread or another one joins it already */
int thr_getid(void);
int thr_yield(int tid);

#endif

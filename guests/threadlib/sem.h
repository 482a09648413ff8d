/* Counting semaphores. */
#ifndef SEM_H
#define SEM_H

#include "cond.h"

struct sem {
    struct mutex lock;
    struct cond positive;
    int count;
};

void sem_init(struct sem *s, int count);
void sem_destroy(struct sem *s);
void sem_wait(struct sem *s);
void sem_signal(struct sem *s);

#endif

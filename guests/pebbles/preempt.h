/*
 * Preemption: when the timer may take the processor away.
 *
 * Between preempt_disable and preempt_enable no other thread runs unless this one calls schedule(). Calls nest. All state of
 * the scheduler, the wait queues and the two allocators is guarded this way; everything that takes longer uses a mutex.
 *
 * Two designs. By default interrupts are off meanwhile. In the other (see preempt.c) they stay on, and their handlers
 * look at preempt_depth: while it is not zero they note the event and leave the threads alone.
 */
#ifndef PREEMPT_H
#define PREEMPT_H

#include <stdbool.h>

extern volatile int preempt_depth;

/* Whether preempt_enable will turn interrupts on again: part of a thread's state, which the scheduler saves. */
extern bool interrupts_were_on;

void preempt_disable(void);
void preempt_enable(void);

/* For handlers of interrupts: may threads be woken? */
bool preempt_allows_wakeup(void);

#endif

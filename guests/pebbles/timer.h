/* The clock as the rest of the kernel sees it. */
#ifndef TIMER_H
#define TIMER_H

#include <stdint.h>

enum { TIMER_DIVISOR = 11932 }; /* 100 ticks a second */

uint32_t get_ticks(void);
void sleep_until(uint32_t tick); /* or until the task is killed */

#endif

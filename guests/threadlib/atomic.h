/* The atomic instructions of the processor as functions. */
#ifndef ATOMIC_H
#define ATOMIC_H

int atomic_exchange(volatile int *at, int value);                       /* returns the old value */
int atomic_compare_swap(volatile int *at, int expected, int value);     /* returns the old value; stores if it was expected */
int atomic_fetch_add(volatile int *at, int n);                          /* returns the old value */
int atomic_fetch_sub(volatile int *at, int n);

void *atomic_exchange_pointer(void *volatile *at, void *value);
void *atomic_compare_swap_pointer(void *volatile *at, void *expected, void *value);

#endif

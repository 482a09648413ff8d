#include "atomic.h"

int atomic_exchange(volatile int *at, int value)
{
#ifdef FAULT_TORN_EXCHANGE
    int old = *at;
    *at = value;
    return old;
#else
    asm volatile("xchgl %0, %1" : "+r"(value), "+m"(*at) : : "memory");
    return value;
#endif
}

int atomic_compare_swap(volatile int *at, int expected, int value)
{
#ifdef FAULT_TORN_COMPARE_SWAP
    int old = *at;
    if (old == expected)
        *at = value;
    return old;
#else
    asm volatile("lock cmpxchgl %2, %1" : "+a"(expected), "+m"(*at) : "r"(value) : "memory", "cc");
    return expected;
#endif
}

int atomic_fetch_add(volatile int *at, int n)
{
#ifdef FAULT_TORN_FETCH_ADD
    int old = *at;
    *at = old + n;
    return old;
#else
    asm volatile("lock xaddl %0, %1" : "+r"(n), "+m"(*at) : : "memory", "cc");
    return n;
#endif
}

int atomic_fetch_sub(volatile int *at, int n)
{
    return atomic_fetch_add(at, -n);
}

void *atomic_exchange_pointer(void *volatile *at, void *value)
{
    asm volatile("xchgl %0, %1" : "+r"(value), "+m"(*at) : : "memory");
    return value;
}

void *atomic_compare_swap_pointer(void *volatile *at, void *expected, void *value)
{
    asm volatile("lock cmpxchgl %2, %1" : "+a"(expected), "+m"(*at) : "r"(value) : "memory", "cc");
    return expected;
}

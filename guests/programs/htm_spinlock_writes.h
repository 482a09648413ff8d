/* Looks by an instruction that writes what it reads, so that any two transactions conflict. */
#define LOCK_LOOK(word) atomic_compare_swap(word, 0, 0)
#include "htm_spinlock.h"

/* The critical sections of an elided spinlock that transactions look at by writing exclude each other. */
#include "htm_spinlock_writes.h"

#include "htm_lock_excludes.h"

/* Independent critical sections of an elided spinlock that transactions look at by writing stay transactions. */
#include "htm_spinlock_writes.h"

#include "htm_lock_elides.h"

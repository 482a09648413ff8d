/* Independent critical sections of an elided spinlock stay transactions. */
#include "htm_spinlock_reads.h"

#include "htm_lock_elides.h"

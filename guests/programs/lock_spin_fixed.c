/* The critical sections of an elided spinlock exclude each other. */
#include "htm_spinlock_reads.h"

#include "htm_lock_excludes.h"

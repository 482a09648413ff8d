/* The critical sections of an elided mutex exclude each other. */
#include "htm_lock_mutex.h"

#include "htm_lock_excludes.h"

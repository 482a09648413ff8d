/* Independent critical sections of an elided mutex stay transactions. */
#include "htm_lock_mutex.h"

#include "htm_lock_elides.h"

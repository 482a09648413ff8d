/* Looks by reading. */
#define LOCK_LOOK(word) (*(word))
#include "htm_spinlock.h"

/* Right: the lock is read in the transaction, so that whoever takes it aborts the transaction. */
#include "elided.h"

static int is_free(void)
{
    return taken == 0;
}

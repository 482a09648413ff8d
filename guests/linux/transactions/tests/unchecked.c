/* Wrong: the transaction does not look at the lock. */
#include "elided.h"

static int is_free(void)
{
    return 1;
}

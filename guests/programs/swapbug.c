/* Exchanges elements of an array; the fallback locks the elements in the order in which they were named, so that threads may
   wait for each other in a circle. */
#include "htm_swap.h"

static int swap_locks_first(int a, int b)
{
    (void)b;
    return a;
}

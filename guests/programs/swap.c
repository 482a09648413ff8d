/* Exchanges elements of an array; the fallback locks the lower element first. */
#include "htm_swap.h"

static int swap_locks_first(int a, int b)
{
    return a < b ? a : b;
}

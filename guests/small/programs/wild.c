/* Writes to memory that it does not have, for which the kernel ends it. */
#include "user.h"

int main(void)
{
    *(volatile int *)0x50000000 = 1;
    return 0;
}

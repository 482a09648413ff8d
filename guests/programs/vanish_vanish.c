/* A parent and its child vanish at the same time. */
#include "../runtime/syscall.h"

int main(void)
{
    fork();
    vanish();
}

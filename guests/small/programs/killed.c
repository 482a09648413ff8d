/* A child that computes for ever is killed. */
#include "user.h"

int main(void)
{
    int child = fork();
    if (child == 0)
        for (;;)
            __asm__ volatile("");
    kill(child);
    wait();
    return 0;
}

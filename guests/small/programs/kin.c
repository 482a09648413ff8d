/* A parent and its child both have a child. */
#include "user.h"

int main(void)
{
    int child = fork();
    if (fork() == 0)
        return 0;
    wait();
    if (child)
        wait();
    return 0;
}

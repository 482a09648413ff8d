/* A child reads numbers from the disk again and again, for which its parent waits. */
#include "user.h"

int main(void)
{
    if (fork() == 0) {
        for (int i = 0; i < 20; i++)
            add(0, 0);
        return 0;
    }
    wait();
    return 0;
}

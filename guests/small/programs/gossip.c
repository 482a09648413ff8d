/* Two processes print without end, one of them with rests. */
#include "user.h"

int main(void)
{
    if (fork() == 0)
        for (;;)
            print("there is more to say\n");
    for (;;) {
        print("and here\n");
        sleep(1);
    }
}

/* Two processes each add to a number of their own on the disk. */
#include "user.h"

int main(void)
{
    int child = fork();
    int own = child ? 1 : 2;
    int before = add(own, 0);
    add(own, 1);
    if (add(own, 0) != before + 1)
        print("FAIL: an addition is lost\n");
    if (child)
        wait();
    return 0;
}

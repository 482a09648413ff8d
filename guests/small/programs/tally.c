/* Three processes add to the same number on the disk. */
#include "user.h"

int main(void)
{
    int before = add(0, 0);
    int first = fork();
    int second = first == 0 ? -1 : fork();
    add(0, 1);
    if (first == 0 || second == 0)
        return 0;
    wait();
    wait();
    if (add(0, 0) != before + 3)
        print("FAIL: an addition is lost\n");
    return 0;
}

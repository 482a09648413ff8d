/* A parent and its child say something, the child after a rest. */
#include "user.h"

int main(void)
{
    if (fork() == 0) {
        sleep(2);
        print("the child has had a rest\n");
        return 0;
    }
    print("the parent waits\n");
    wait();
    print("the parent is done\n");
    return 0;
}

/* Three processes add to the same number on the disk, while a fourth reads another, says so and rests. */
#include "user.h"

int main(void)
{
    if (fork() == 0) {
        add(3, 0);
        print("there is another number\n");
        sleep(1);
        return 0;
    }
    int first = fork();
    int second = first == 0 ? -1 : fork();
    add(0, 1);
    if (first == 0 || second == 0)
        return 0;
    while (wait() > 0)
        ;
    return 0;
}

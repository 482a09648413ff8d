/* Runs the program whose name is typed, and waits until it and all that it left behind have ended. */
#include "user.h"

int main(void)
{
    char line[32];
    for (;;) {
        print("$ ");
        if (read_line(line, sizeof line) == 0)
            continue;
        if (fork() == 0) {
            exec(line);
            print("there is no such program\n");
            exit();
        }
        while (wait() > 0)
            ;
    }
}

/* The first program: starts the shell, again and again if need be, and buries every orphan. */
#include "../runtime/syscall.h"

int main(int argc, char **argv)
{
    (void)argc;
    for (;;) {
        int shell = fork();
        if (shell == 0) {
            argv[0] = "shell";
            exec("shell", argv);
            halt();
        }
        while (wait(NULL) != shell)
            ;
    }
}

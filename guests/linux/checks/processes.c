/* Fork and exec in loops: copies are separate, arguments and environment arrive, statuses come back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 20
#define EXECS 8

static int shared_by_copy = 1;

static void must(int holds, const char *what)
{
    if (!holds) {
        printf("%s does not hold (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "child") == 0) {
        const char *number = getenv("NUMBER");
        return number && strcmp(number, arguments[2]) == 0 ? atoi(number) : 99;
    }
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "shared memory");
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            shared_by_copy += 100;
            shared[0] += 1;
            _exit(shared_by_copy - 100 == 1 ? i : 99);
        }
        int status;
        must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == i, "a child's status");
        must(shared_by_copy == 1 && shared[0] == i + 1, "what is copied and what is shared");
    }
    for (int i = 0; i < EXECS; i++) {
        char number[16], variable[32];
        snprintf(number, sizeof number, "%d", i);
        snprintf(variable, sizeof variable, "NUMBER=%d", i);
        pid_t child = vfork();
        if (child == 0) {
            char *arguments_of_child[] = {arguments[0], "child", number, NULL};
            char *environment[] = {variable, NULL};
            execve("/proc/self/exe", arguments_of_child, environment);
            _exit(98);
        }
        int status;
        must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == i, "an executed child");
    }
    int ends[2];
    char text[6] = "";
    must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    pid_t child = fork();
    if (child == 0)
        _exit(write(ends[1], "hello", 5) != 5);
    must(waitpid(child, NULL, 0) == child && read(ends[0], text, 5) == 5 && strcmp(text, "hello") == 0, "a pipe");
    return 0;
}

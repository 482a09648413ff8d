/*
 * The first process: mounts what programs expect, loads the packed modules, runs the tests one after another, reports
 * each result, and switches the machine off.
 *
 * From the kernel's command line: `test=NAME` runs only that test; `run=PROGRAM,ARGUMENT,...` runs a program of the image
 * on the console instead of the tests.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rockfall.h"

#define ARGUMENTS_MAX 16

/* Of linux/module.h; older headers lack it. */
#ifndef MODULE_INIT_COMPRESSED_FILE
#define MODULE_INIT_COMPRESSED_FILE 4
#endif

static void say(const char *what, const char *name, const char *result)
{
    char text[256];
    snprintf(text, sizeof text, "%s %s: %s", what, name, result);
    rockfall_message(text);
    dprintf(STDOUT_FILENO, "%s\n", text);
}

static void provide(const char *type, const char *where)
{
    mkdir(where, 0755);
    if (mount(type, where, type, 0, NULL) != 0 && errno != EBUSY)
        say("mount", where, strerror(errno));
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Calls `each` with the path and name of every file in a folder, by name; the number of times it returned nonzero. */
static int for_files(const char *folder, int (*each)(const char *path, const char *name))
{
    struct dirent **names;
    int count = scandir(folder, &names, visible, alphasort), sum = 0;
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        sum += each(path, names[i]->d_name) != 0;
    }
    return sum;
}

static int load(const char *path, const char *name)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = strlen(name);
    int compressed = length > 3 && strcmp(name + length - 3, ".ko") != 0;
    int failed = file < 0 || syscall(SYS_finit_module, file, "", compressed ? MODULE_INIT_COMPRESSED_FILE : 0) != 0;
    say("module", name, failed ? strerror(errno) : "loaded");
    close(file);
    return failed;
}

/* Runs a program to its end, the console being its terminal; its wait status. */
static int run(char **arguments)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        ioctl(STDIN_FILENO, TIOCSCTTY, 0);
        execv(arguments[0], arguments);
        dprintf(STDERR_FILENO, "%s: %s\n", arguments[0], strerror(errno));
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    /* Orphans of the test, if any, have become our children. */
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return status;
}

static int test(const char *path, const char *name)
{
    const char *wanted = getenv("test");
    if (wanted && strcmp(wanted, name) != 0)
        return 0;
    char *arguments[] = {(char *)path, NULL};
    int status = run(arguments);
    char result[64];
    if (WIFSIGNALED(status))
        snprintf(result, sizeof result, "killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        snprintf(result, sizeof result, "failed, status %d", WEXITSTATUS(status));
    else
        snprintf(result, sizeof result, "passed");
    say("test", name, result);
    rockfall_result(name, status);
    return status != 0;
}

int main(void)
{
    provide("proc", "/proc");
    provide("sysfs", "/sys");
    provide("devtmpfs", "/dev");
    provide("tmpfs", "/tmp");
    int console = open("/dev/console", O_RDWR);
    for (int descriptor = 0; console >= 0 && descriptor <= STDERR_FILENO; descriptor++)
        dup2(console, descriptor);
    if (console > STDERR_FILENO)
        close(console);
    rockfall_ready();
    for_files("/modules", load);

    char *command = getenv("run");
    if (command) {
        char *arguments[ARGUMENTS_MAX + 1] = {NULL};
        int count = 0;
        for (char *word = strtok(command, ","); word && count < ARGUMENTS_MAX; word = strtok(NULL, ","))
            arguments[count++] = word;
        if (count)
            run(arguments);
    } else {
        for_files("/tests", test);
    }
    sync();
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

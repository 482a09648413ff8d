/* Runs programs by name. `exit` turns the machine off; a program named on the shell's own command line runs first and only. */
#include "../lib/string.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

enum { LINE_MAX = 128, WORDS_MAX = 8 };

static int split(char *line, char **words)
{
    int count = 0;
    while (count < WORDS_MAX) {
        while (*line == ' ' || *line == '\n')
            *line++ = '\0';
        if (!*line)
            break;
        words[count++] = line;
        while (*line && *line != ' ' && *line != '\n')
            line++;
    }
    words[count] = NULL;
    return count;
}

static void run(char **words)
{
    int status, tid = fork();
    if (tid == 0) {
        exec(words[0], words);
        printf("%s: no such program\n", words[0]);
        exit(-1);
    }
    if (tid < 0) {
        printf("cannot fork\n");
        return;
    }
    wait(&status);
    if (status != 0)
        printf("%s: status %d\n", words[0], status);
}

int main(int argc, char **argv)
{
    char line[LINE_MAX];
    char *words[WORDS_MAX + 1];
    if (argc > 1) {
        run(argv + 1);
        halt();
    }
    for (;;) {
        printf("$ ");
        int length = readline(LINE_MAX - 1, line);
        if (length <= 0)
            continue;
        line[length] = '\0';
        if (split(line, words) == 0)
            continue;
        if (strcmp(words[0], "exit") == 0)
            halt();
        run(words);
    }
}

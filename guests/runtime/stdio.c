#include "stdio.h"

#include "../lib/format.h"
#include "syscall.h"

enum { TEXT_MAX = 256, STATUS_PANIC = -3 };

void printf(const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    int length = format(text, sizeof text, fmt, args);
    va_end(args);
    print(length, text);
}

void panic(const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    int length = format(text, sizeof text - 1, fmt, args);
    va_end(args);
    text[length] = '\n';
    print(length + 1, text);
    task_vanish(STATUS_PANIC);
}

void exit(int status)
{
    set_status(status);
    vanish();
}

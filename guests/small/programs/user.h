/* What a program of the small Unix can ask of its kernel. It is one file, whose first instruction is at its beginning. */
#ifndef USER_H
#define USER_H

static inline int call(int number, int first, int second)
{
    int result;
    __asm__ volatile("int $0x40" : "=a"(result) : "a"(number), "b"(first), "c"(second) : "memory");
    return result;
}

static inline int fork(void)
{
    return call(1, 0, 0);
}

static inline void exit(void)
{
    call(2, 0, 0);
}

static inline int wait(void)
{
    return call(3, 0, 0);
}

static inline int exec(const char *name)
{
    return call(4, (int)name, 0);
}

static inline void sleep(int ticks)
{
    call(5, ticks, 0);
}

static inline void print(const char *text)
{
    call(6, (int)text, 0);
}

static inline int read_line(char *line, int size)
{
    return call(7, (int)line, size);
}

/* Adds to a number on the disk; what it is then. */
static inline int add(int number, int amount)
{
    return call(8, number, amount);
}

static inline void kill(int process)
{
    call(9, process, 0);
}

int main(void);

__asm__(".section .start, \"ax\"\n"
        ".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "  call main\n"
        "  movl $2, %eax\n"
        "  int $0x40\n"
        ".size _start, . - _start\n"
        ".previous\n");

#endif

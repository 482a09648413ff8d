/* Reading lines, printing, and the looks of the console; ls and halt. */
#include "../lib/string.h"
#include "console.h"
#include "keyboard.h"
#include "loader.h"
#include "machine.h"
#include "syscall.h"
#include "task.h"

enum { PRINT_MAX = 1 << 20, PRINT_PART = 128, LINE_MAX = 4096 };

/* One thread reads at a time; the others wait their turn. */
static struct mutex reader_lock;
static struct cond reader_left;
static struct thread *reader;
static char line[LINE_MAX]; /* the reader's */

static bool reader_enter(void)
{
    mutex_lock(&reader_lock);
    while (reader && !current->task->dying)
        cond_wait(&reader_left, &reader_lock);
    bool mine = !reader;
    if (mine)
        reader = current;
    mutex_unlock(&reader_lock);
    return mine;
}

static void reader_leave(void)
{
    mutex_lock(&reader_lock);
    reader = NULL;
    cond_signal(&reader_left);
    mutex_unlock(&reader_lock);
}

static void echo(char c)
{
    mutex_lock(&console_lock);
    console_putc(c);
    mutex_unlock(&console_lock);
}

int sys_getchar(struct ureg *u)
{
    (void)u;
    if (!reader_enter())
        return SYSCALL_ERROR;
    int c = keyboard_getc();
    reader_leave();
    return c;
}

/* Collects a line, echoing it; returns its length, or -1 if the task was killed. */
static __attribute__((noinline)) int readline(int size)
{
    int length = 0;
    for (;;) {
        int c = keyboard_getc();
        if (c < 0)
            return -1;
        if (c == '\b') {
            if (length > 0) {
                length--;
                echo('\b');
            }
            continue;
        }
        line[length++] = (char)c;
        echo((char)c);
        if (c == '\n' || length == size)
            return length;
    }
}

int sys_readline(struct ureg *u)
{
    uint32_t packet[2];
    if (!get_args(u, packet, 2))
        return SYSCALL_ERROR;
    int size = (int)packet[0];
    if (size < 0 || size > LINE_MAX || !user_can_write(packet[1], (size_t)size))
        return SYSCALL_ERROR;
    if (size == 0)
        return 0;
    if (!reader_enter())
        return SYSCALL_ERROR;
    int length = readline(size);
    if (length > 0 && !copy_to_user(packet[1], line, (size_t)length))
        length = SYSCALL_ERROR;
    reader_leave();
    return length;
}

int sys_print(struct ureg *u)
{
    uint32_t packet[2];
    char part[PRINT_PART];
    if (!get_args(u, packet, 2) || packet[0] > PRINT_MAX)
        return SYSCALL_ERROR;
    uint32_t left = packet[0], from = packet[1];
    bool readable = true;
    mutex_lock(&console_lock);
    while (left > 0 && readable) {
        uint32_t n = left < PRINT_PART ? left : PRINT_PART;
        readable = copy_from_user(part, from, n);
        for (uint32_t i = 0; readable && i < n; i++)
            console_putc(part[i]);
        from += n;
        left -= n;
    }
    mutex_unlock(&console_lock);
    return readable ? 0 : SYSCALL_ERROR;
}

int sys_set_term_color(struct ureg *u)
{
    mutex_lock(&console_lock);
    bool done = console_set_color((int)u->esi);
    mutex_unlock(&console_lock);
    return done ? 0 : SYSCALL_ERROR;
}

int sys_set_cursor_pos(struct ureg *u)
{
    uint32_t packet[2];
    if (!get_args(u, packet, 2))
        return SYSCALL_ERROR;
    mutex_lock(&console_lock);
    bool done = console_set_cursor((int)packet[0], (int)packet[1]);
    mutex_unlock(&console_lock);
    return done ? 0 : SYSCALL_ERROR;
}

int sys_get_cursor_pos(struct ureg *u)
{
    uint32_t packet[2];
    int row, column;
    if (!get_args(u, packet, 2))
        return SYSCALL_ERROR;
    mutex_lock(&console_lock);
    console_get_cursor(&row, &column);
    mutex_unlock(&console_lock);
    bool done = copy_to_user(packet[0], &row, sizeof row) && copy_to_user(packet[1], &column, sizeof column);
    return done ? 0 : SYSCALL_ERROR;
}

/* The names one behind the other, each with its NUL, and a last NUL; returns how many, or an error if they do not fit. */
int sys_ls(struct ureg *u)
{
    uint32_t packet[2];
    if (!get_args(u, packet, 2))
        return SYSCALL_ERROR;
    uint32_t left = packet[0], to = packet[1];
    int count = 0;
    for (const struct ramdisk_file *f = ramdisk; f->name; f++, count++) {
        uint32_t n = strlen(f->name) + 1;
        if (n > left || !copy_to_user(to, f->name, n))
            return SYSCALL_ERROR;
        to += n;
        left -= n;
    }
    return left > 0 && copy_to_user(to, "", 1) ? count : SYSCALL_ERROR;
}

int sys_halt(struct ureg *u)
{
    (void)u;
    machine_off();
}

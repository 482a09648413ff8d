#include "console.h"

#include "../lib/format.h"
#include "../lib/string.h"
#include "x86.h"

enum { SERIAL = 0x3f8, SERIAL_STATUS = SERIAL + 5, SERIAL_CAN_SEND = 0x20 };
enum { CRTC_INDEX = 0x3d4, CRTC_DATA = 0x3d5, CRTC_CURSOR_HIGH = 14, CRTC_CURSOR_LOW = 15 };
enum { COLOR_DEFAULT = 0x07, COLOR_MAX = 0xff };

static uint16_t (*const screen)[CONSOLE_COLUMNS] = (void *)0xb8000;
struct mutex console_lock;

static int cursor_row, cursor_column;
static uint8_t color = COLOR_DEFAULT;

static void serial_putc(char c)
{
    while (!(inb(SERIAL_STATUS) & SERIAL_CAN_SEND))
        ;
    outb(SERIAL, (uint8_t)c);
}

static void move_hardware_cursor(void)
{
    unsigned at = cursor_row * CONSOLE_COLUMNS + cursor_column;
    outb(CRTC_INDEX, CRTC_CURSOR_HIGH);
    outb(CRTC_DATA, at >> 8);
    outb(CRTC_INDEX, CRTC_CURSOR_LOW);
    outb(CRTC_DATA, at & 0xff);
}

static void clear_row(int row)
{
    for (int i = 0; i < CONSOLE_COLUMNS; i++)
        screen[row][i] = color << 8 | ' ';
}

static void new_line(void)
{
    cursor_column = 0;
    if (++cursor_row == CONSOLE_ROWS) {
        cursor_row--;
        memmove(screen[0], screen[1], (CONSOLE_ROWS - 1) * sizeof screen[0]);
        clear_row(CONSOLE_ROWS - 1);
    }
}

void console_init(void)
{
    outb(SERIAL + 3, 0x80); /* 115200 baud, 8 bits, no parity, one stop bit */
    outb(SERIAL, 1);
    outb(SERIAL + 1, 0);
    outb(SERIAL + 3, 0x03);
    outb(SERIAL + 4, 0x0b); /* no FIFO: to enable it would lose a character that has come already */
    for (int row = 0; row < CONSOLE_ROWS; row++)
        clear_row(row);
    move_hardware_cursor();
}

void console_putc(char c)
{
    if (c == '\n')
        serial_putc('\r');
    serial_putc(c);
    if (c == '\b') {
        serial_putc(' ');
        serial_putc('\b');
    }
    switch (c) {
    case '\n':
        new_line();
        break;
    case '\r':
        cursor_column = 0;
        break;
    case '\b':
        if (cursor_column > 0)
            screen[cursor_row][--cursor_column] = color << 8 | ' ';
        break;
    default:
        screen[cursor_row][cursor_column] = color << 8 | (uint8_t)c;
        if (++cursor_column == CONSOLE_COLUMNS)
            new_line();
    }
    move_hardware_cursor();
}

void console_write(const char *s)
{
    while (*s)
        console_putc(*s++);
}

void console_printf(const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    format(text, sizeof text, fmt, args);
    va_end(args);
    mutex_lock(&console_lock);
    console_write(text);
    mutex_unlock(&console_lock);
}

bool console_set_color(int value)
{
    if (value < 0 || value > COLOR_MAX)
        return false;
    color = (uint8_t)value;
    return true;
}

bool console_set_cursor(int row, int column)
{
    if (row < 0 || row >= CONSOLE_ROWS || column < 0 || column >= CONSOLE_COLUMNS)
        return false;
    cursor_row = row;
    cursor_column = column;
    move_hardware_cursor();
    return true;
}

void console_get_cursor(int *row, int *column)
{
    *row = cursor_row;
    *column = cursor_column;
}

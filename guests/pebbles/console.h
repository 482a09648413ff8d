/*
 * The console: an 80 by 25 text screen, copied to the first serial port. Threads hold console_lock while they write, so that
 * lines stay whole; console_printf takes it itself.
 */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdbool.h>

#include "sync.h"

enum { CONSOLE_ROWS = 25, CONSOLE_COLUMNS = 80 };

extern struct mutex console_lock;

void console_init(void);
void console_putc(char c);
void console_write(const char *s);
void console_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool console_set_color(int color);
bool console_set_cursor(int row, int column);
void console_get_cursor(int *row, int *column);

#endif

/* printf's inner part: %d %u %x %p %s %c %%, a width, and zero padding. */
#ifndef LIB_FORMAT_H
#define LIB_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/* Writes at most size bytes including the closing NUL; returns the length of the text written. */
int format(char *to, size_t size, const char *fmt, va_list args);

#endif

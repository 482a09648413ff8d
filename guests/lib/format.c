#include "format.h"

#include <stdbool.h>

struct out {
    char *to;
    size_t size, used;
};

static void put(struct out *o, char c)
{
    if (o->used + 1 < o->size)
        o->to[o->used++] = c;
}

static void put_number(struct out *o, unsigned n, unsigned base, bool negative, int width, char pad)
{
    char digits[12];
    int count = 0;
    do {
        digits[count++] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n > 0);
    if (negative)
        digits[count++] = '-';
    for (; width > count; width--)
        put(o, pad);
    while (count > 0)
        put(o, digits[--count]);
}

int format(char *to, size_t size, const char *fmt, va_list args)
{
    struct out o = {to, size, 0};
    for (; *fmt; fmt++) {
        if (*fmt != '%') {
            put(&o, *fmt);
            continue;
        }
        char pad = ' ';
        int width = 0;
        if (*++fmt == '0')
            pad = '0';
        while (*fmt >= '0' && *fmt <= '9')
            width = width * 10 + (*fmt++ - '0');
        switch (*fmt) {
        case 'd': {
            int n = va_arg(args, int);
            put_number(&o, n < 0 ? -(unsigned)n : (unsigned)n, 10, n < 0, width, pad);
            break;
        }
        case 'u':
            put_number(&o, va_arg(args, unsigned), 10, false, width, pad);
            break;
        case 'p':
            put(&o, '0');
            put(&o, 'x');
            put_number(&o, va_arg(args, unsigned), 16, false, 8, '0');
            break;
        case 'x':
            put_number(&o, va_arg(args, unsigned), 16, false, width, pad);
            break;
        case 'c':
            put(&o, (char)va_arg(args, int));
            break;
        case 's': {
            const char *s = va_arg(args, const char *);
            int length = 0;
            for (s = s ? s : "(null)"; *s; s++, length++)
                put(&o, *s);
            for (; width > length; width--)
                put(&o, ' ');
            break;
        }
        case '%':
            put(&o, '%');
            break;
        default:
            put(&o, '?');
            break;
        }
    }
    if (size > 0)
        o.to[o.used] = '\0';
    return (int)o.used;
}

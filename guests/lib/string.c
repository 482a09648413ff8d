#include "string.h"

#include <stdint.h>

void *memcpy(void *to, const void *from, size_t n)
{
    void *d = to;
    size_t words = n / 4, bytes = n % 4;
    asm volatile("rep movsl" : "+D"(d), "+S"(from), "+c"(words) : : "memory");
    asm volatile("rep movsb" : "+D"(d), "+S"(from), "+c"(bytes) : : "memory");
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to - (uintptr_t)from >= n)
        return memcpy(to, from, n);
    char *d = to;
    const char *s = from;
    while (n--)
        d[n] = s[n];
    return to;
}

void *memset(void *to, int byte, size_t n)
{
    void *d = to;
    uint32_t pattern = (uint8_t)byte * 0x01010101u;
    size_t words = n / 4, bytes = n % 4;
    asm volatile("rep stosl" : "+D"(d), "+c"(words) : "a"(pattern) : "memory");
    asm volatile("rep stosb" : "+D"(d), "+c"(bytes) : "a"(pattern) : "memory");
    return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (; n > 0; n--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

size_t strlen(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

int strcmp(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

int strncmp(const char *a, const char *b, size_t n)
{
    while (n > 0 && *a && *a == *b)
        a++, b++, n--;
    return n == 0 ? 0 : (unsigned char)*a - (unsigned char)*b;
}

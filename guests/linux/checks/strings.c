/* The C library's string functions on every alignment and many lengths, against plain loops: they use what vector
 * instructions the processor announces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE 512

static unsigned char a[SPACE + 64], b[SPACE + 64], model[SPACE + 64];

static unsigned next_random(void)
{
    static unsigned long long state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32);
}

static void must(int holds, const char *what, int offset, int length)
{
    if (!holds) {
        printf("%s is wrong at offset %d, length %d\n", what, offset, length);
        exit(1);
    }
}

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

static void copies(int offset, int length)
{
    size_t bytes = (size_t)(unsigned)length;
    for (int i = 0; i < SPACE; i++)
        a[i] = b[i] = model[i] = (unsigned char)next_random();
    int from = (int)(next_random() % 32);
    for (int i = 0; i < length; i++)
        model[offset + i] = a[from + i];
    memcpy(b + offset, a + from, bytes);
    must(memcmp(b, model, SPACE) == 0, "memcpy", offset, length);

    memcpy(model, a, SPACE);
    for (int i = 0; i < length; i++)
        model[offset + i] = a[from + i];
    memcpy(b, a, SPACE);
    memmove(b + offset, b + from, bytes);
    must(memcmp(b, model, SPACE) == 0, "memmove", offset, length);

    for (int i = 0; i < length; i++)
        model[offset + i] = 0x5a;
    memset(b + offset, 0x5a, bytes);
    must(memcmp(b, model, SPACE) == 0, "memset", offset, length);
}

static void searches(int offset, int length)
{
    char *text = (char *)a + offset;
    for (int i = 0; i < length; i++)
        text[i] = (char)('b' + next_random() % 20);
    text[length] = 0;
    must((int)strlen(text) == length, "strlen", offset, length);
    must(strnlen(text, (size_t)length / 2) == (size_t)length / 2, "strnlen", offset, length);
    must(strchr(text, 'a') == NULL, "strchr of nothing", offset, length);
    must(strcmp(text, text) == 0, "strcmp with itself", offset, length);
    char *copy = (char *)b + next_random() % 32;
    strcpy(copy, text);
    must(strcmp(copy, text) == 0, "strcpy", offset, length);
    if (length == 0)
        return;
    int at = (int)(next_random() % (unsigned)length);
    char was = text[at];
    text[at] = 'a';
    must(strchr(text, 'a') == text + at, "strchr", offset, length);
    must(strrchr(text, 'a') == text + at, "strrchr", offset, length);
    must(memchr(text, 'a', (size_t)length) == text + at, "memchr", offset, length);
    must((int)strcspn(text, "a") == at, "strcspn", offset, length);
    must(strstr(text, "a") == text + at, "strstr", offset, length);
    must(sign(strcmp(text, copy)) == -1 && sign(strcmp(copy, text)) == 1, "strcmp", offset, length);
    must(strncmp(text, copy, (size_t)at) == 0, "strncmp", offset, length);
    must(sign(memcmp(text, copy, (size_t)length)) == -1, "memcmp", offset, length);
    text[at] = was;
}

int main(void)
{
    for (int offset = 0; offset < 32; offset++) {
        for (int length = 0; length < 200; length += 1 + length / 24) {
            copies(offset, length);
            searches(offset, length);
        }
    }
    char text[64];
    snprintf(text, sizeof text, "%d %lu %#x %s %c %8.3f %-6d|", -12, 1234567890123ul, 0xbeef, "text", 'c', 3.14159, 42);
    must(strcmp(text, "-12 1234567890123 0xbeef text c    3.142 42    |") == 0, "snprintf", 0, 0);
    must(strtol("-0x7f", NULL, 0) == -127 && strtoull("18446744073709551615", NULL, 10) == ~0ull, "strtol", 0, 0);
    return 0;
}

/* readline and getchar: give it a line, then one more key. */
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

int main(void)
{
    char line[16];
    int length = readline(sizeof line, line);
    int key = getchar();
    assert(length > 0 && line[length - 1] == '\n');
    line[length - 1] = '\0';
    printf("input_test: \"%s\" and '%c'\n", line, key);
    return 0;
}

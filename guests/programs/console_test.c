/* print, set_term_color, set_cursor_pos, get_cursor_pos, ls. */
#include "../lib/string.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

static char names[2048];

int main(void)
{
    int row = -1, column = -1;
    assert(print(0, "") == 0 && print(-1, "") < 0);
    assert(print(6, "hello\n") == 0);

    assert(set_term_color(0x4f) == 0 && set_term_color(0x100) < 0 && set_term_color(-1) < 0);
    assert(set_term_color(0x07) == 0);

    assert(get_cursor_pos(&row, &column) == 0 && row >= 0 && row < 25 && column == 0);
    assert(set_cursor_pos(row, 7) == 0 && set_cursor_pos(25, 0) < 0 && set_cursor_pos(0, 80) < 0 &&
           set_cursor_pos(-1, 0) < 0);
    assert(get_cursor_pos(&row, &column) == 0 && column == 7);
    assert(set_cursor_pos(row, 0) == 0);

    int count = ls(sizeof names, names), found = 0;
    assert(count > 10 && ls(10, names) < 0);
    const char *name = names;
    for (int i = 0; i < count; i++) {
        found += strcmp(name, "console_test") == 0;
        name += strlen(name) + 1;
    }
    assert(found == 1 && *name == '\0');
    printf("console_test: ok\n");
    return 0;
}

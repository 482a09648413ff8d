/* One thread prints a page while another removes it: the print fails or succeeds, and that is all. */
#include "../runtime/spawn.h"
#include "../runtime/syscall.h"

enum { PAGE = 4096 };
#define TEXT ((char *)0x30000000)

static struct spawn_stack stack;

static void remover(void)
{
    remove_pages(TEXT);
    vanish();
}

int main(void)
{
    new_pages(TEXT, PAGE);
    SPAWN(stack, remover);
    get_cursor_pos((int *)TEXT, (int *)TEXT + 1);
    vanish();
}

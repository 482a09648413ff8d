/* Every system call that takes an address gets bad ones. The kernel says no and lives on. */
#include <stddef.h>

#include "../lib/syscall_int.h"
#include "../runtime/stdio.h"
#include "../runtime/syscall.h"

/* Nothing, the kernel, past the end of user memory, and a page that is only half there. */
static const unsigned bad[] = {4, 0x100000, 0x00fffffe, 0xbffffffe, 0xfffffffe, 0x60000000, 0x60001ffe};

#define CALL(number, esi)                                                                                                   \
    ({                                                                                                                      \
        int result;                                                                                                         \
        asm volatile("int %1" : "=a"(result) : "i"(number), "S"(esi) : "memory");                                           \
        result;                                                                                                             \
    })

int main(void)
{
    char *good_argv[] = {"echo", NULL};
    char *bad_argv[] = {"echo", (char *)4, NULL};
    char line[8];
    int number;
    assert(new_pages((void *)0x60001000, 4096) == 0);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned p = bad[i];
        assert(CALL(EXEC_INT, p) < 0);
        assert(CALL(SWEXN_INT, p) < 0);
        assert(CALL(NEW_PAGES_INT, p) < 0);
        assert(CALL(READLINE_INT, p) < 0);
        assert(CALL(PRINT_INT, p) < 0);
        assert(CALL(SET_CURSOR_POS_INT, p) < 0);
        assert(CALL(GET_CURSOR_POS_INT, p) < 0);
        assert(CALL(LS_INT, p) < 0);
        assert(CALL(REMOVE_PAGES_INT, p) < 0);
        assert(CALL(DESCHEDULE_INT, p) < 0);
        assert(CALL(WAIT_INT, p) < 0);

        assert(exec((char *)p, good_argv) < 0);
        assert(exec("echo", (char **)p) < 0);
        assert(readline(4, (char *)p) < 0);
        assert(print(4, (char *)p) < 0);
        assert(get_cursor_pos((int *)p, &number) < 0);
        assert(get_cursor_pos(&number, (int *)p) < 0);
        assert(ls(1000, (char *)p) < 0);
        assert(swexn(NULL, NULL, NULL, (struct ureg *)p) < 0);
    }
    assert(exec("echo", bad_argv) < 0);
    assert(readline(-1, line) < 0 && readline(1 << 20, line) < 0 && readline(0, line) == 0);
    assert(readline(4, (char *)main) < 0); /* code is not for writing */
    assert(get_cursor_pos((int *)main, &number) < 0);
    printf("bad_pointer_test: ok\n");
    return 0;
}

/* One group asks for an event more while another, which has it, gives it up; the first must get it afterwards. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "rockfall_test.h"
#define PATH "/tmp/watched"
static int one, two, file;
static int heard(int group)
{
    char buffer[512];
    return read(group, buffer, sizeof buffer) > 0;
}
static void setup(void)
{
    file = open(PATH, O_CREAT | O_RDWR, 0644);
    one = inotify_init1(IN_NONBLOCK);
    two = inotify_init1(IN_NONBLOCK);
    expect(file >= 0 && one >= 0 && two >= 0);
    expect(inotify_add_watch(one, PATH, IN_DELETE_SELF) >= 0);
    expect(inotify_add_watch(two, PATH, IN_DELETE_SELF) >= 0);
    expect(inotify_add_watch(one, PATH, IN_ACCESS) >= 0);
    expect(inotify_add_watch(two, PATH, IN_MODIFY) >= 0);
}
static void first(void) { inotify_add_watch(one, PATH, IN_ACCESS | IN_MODIFY); }
static void second(void) { inotify_add_watch(two, PATH, IN_ATTRIB); }
static void check(void)
{
    heard(one);
    expect(write(file, "x", 1) == 1);
    expect(heard(one));
}
const struct rockfall_test rockfall_test = {setup, {first, second}, check};

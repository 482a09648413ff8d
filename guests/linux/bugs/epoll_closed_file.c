/* A file that an epoll watches and the epoll itself are closed at the same time. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rockfall_test.h"

static int poll_set, source;

static void prepare(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    source = eventfd(0, 0);
    poll_set = epoll_create1(0);
    expect(epoll_ctl(poll_set, EPOLL_CTL_ADD, source, &event) == 0);
}

static void setup(void)
{
    prepare();
    close(poll_set);
    close(source);
    prepare();
}

static void first(void) { expect(close(poll_set) == 0); }
static void second(void) { expect(close(source) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

/* An epoll that another epoll watches is closed while the outer one looks for loops among them. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rockfall_test.h"

static int outer, inner, other;

static void setup(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int source = eventfd(0, 0);
    outer = epoll_create1(0);
    inner = epoll_create1(0);
    other = epoll_create1(0);
    expect(epoll_ctl(inner, EPOLL_CTL_ADD, source, &event) == 0);
    expect(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0);
    expect(epoll_ctl(outer, EPOLL_CTL_ADD, other, &event) == 0);
    expect(epoll_ctl(outer, EPOLL_CTL_DEL, other, &event) == 0);
}

static void first(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    expect(epoll_ctl(outer, EPOLL_CTL_ADD, other, &event) == 0);
}

static void second(void) { expect(close(inner) == 0); }

static void check(void)
{
    struct epoll_event event;
    expect(epoll_wait(outer, &event, 1, 0) == 0);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};

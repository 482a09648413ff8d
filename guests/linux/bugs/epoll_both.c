/* Two wait on one epoll for an event that stays: each must be told of it. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rockfall_test.h"

static int poll_set;

static void wait_once(void)
{
    struct epoll_event event;
    expect(epoll_wait(poll_set, &event, 1, 0) == 1);
}

static void setup(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int source = eventfd(1, 0);
    poll_set = epoll_create1(0);
    expect(epoll_ctl(poll_set, EPOLL_CTL_ADD, source, &event) == 0);
    wait_once();
}

const struct rockfall_test rockfall_test = {setup, {wait_once, wait_once}, 0};

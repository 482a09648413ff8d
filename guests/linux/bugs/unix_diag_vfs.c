/* A socket gets a name in the file system, and loses it, while all sockets are listed with theirs. Needs the module unix_diag. */
#define _GNU_SOURCE
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rockfall_test.h"

static int named, diagnosis;
static char answer[16384];

static void list(void)
{
    struct {
        struct nlmsghdr header;
        struct unix_diag_req request;
    } ask = {
        .header = {sizeof ask, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
        .request = {.sdiag_family = AF_UNIX, .udiag_states = -1, .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS},
    };
    expect(send(diagnosis, &ask, sizeof ask, 0) == sizeof ask);
    expect(recv(diagnosis, answer, sizeof answer, 0) > 0);
}

static void bind_it(int socket, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    __builtin_strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    expect(bind(socket, (struct sockaddr *)&address, sizeof address) == 0);
}

static void setup(void)
{
    diagnosis = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    expect(diagnosis >= 0);
    int warm = socket(AF_UNIX, SOCK_STREAM, 0);
    bind_it(warm, "/tmp/warm");
    list();
    recv(diagnosis, answer, sizeof answer, MSG_DONTWAIT);
    close(warm);
    named = socket(AF_UNIX, SOCK_STREAM, 0);
    bind_it(named, "/tmp/named");
}

static void first(void) { list(); }
static void second(void) { expect(close(named) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

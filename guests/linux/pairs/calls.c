/*
 * Ordinary system calls, each pair of them at once: call number `input / CALLS` on one processor and `input % CALLS` on the other,
 * on one common world of files, pipes, sockets, memory, keys and queues. A call may fail for any reason that the other
 * gives it; it may not hang, crash the kernel or leave a world that cannot be left.
 *
 * The input comes from whoever explores, or from `input=NUMBER` on the kernel's command line. Two worlds are made: the calls
 * are tried on the first, one after the other, so that nothing is done for the first time when it counts.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "rockfall_test.h"

#define PAGE 4096
#define BUFFER 256

static struct world {
    char folder[32];
    int directory, file, again, pipe[2], socket[2], event, poll_set, timer, watch, watch_number;
    int segment, queue, semaphore;
    long key, ring;
    char *memory;
    unsigned word;
} worlds[2], *world;

static int at(void) { return world->directory; }

static void create(void) { close(openat(at(), "new", O_CREAT | O_WRONLY, 0644)); }
static void create_only(void) { close(openat(at(), "new", O_CREAT | O_EXCL | O_WRONLY, 0644)); }
static void remove_file(void) { unlinkat(at(), "file", 0); }
static void rename_file(void) { renameat(at(), "file", at(), "moved"); }
static void exchange(void) { syscall(SYS_renameat2, at(), "file", at(), "folder", 2 /* RENAME_EXCHANGE */); }
static void link_file(void) { linkat(at(), "file", at(), "linked", 0); }
static void make_folder(void) { mkdirat(at(), "made", 0755); }
static void remove_folder(void) { unlinkat(at(), "folder", AT_REMOVEDIR); }
static void append(void) { (void)!write(world->again, "text", 4); }
static void shorten(void) { (void)!ftruncate(world->file, 1); }
static void allocate(void) { fallocate(world->file, 0, 0, 2 * PAGE); }
static void mode(void) { fchmod(world->file, 0600); }
static void attribute(void) { fsetxattr(world->file, "trusted.name", "value", 5, 0); }

static void look(void)
{
    struct stat status;
    fstatat(at(), "file", &status, 0);
}

static void read_file(void)
{
    char text[BUFFER];
    (void)!pread(world->file, text, sizeof text, 0);
}

static void list(void)
{
    char entries[1024];
    lseek(at(), 0, SEEK_SET);
    syscall(SYS_getdents64, at(), entries, sizeof entries);
}

static void lock_part(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8};
    fcntl(world->file, F_OFD_SETLK, &lock);
}

static void lock_whole(void) { flock(world->again, LOCK_EX | LOCK_NB); }
static void pipe_write(void) { (void)!write(world->pipe[1], "text", 4); }

static void pipe_read(void)
{
    char text[8];
    (void)!read(world->pipe[0], text, sizeof text);
}

static void pipe_resize(void) { fcntl(world->pipe[0], F_SETPIPE_SZ, 4 * PAGE); }
static void pipe_splice(void) { splice(world->pipe[0], NULL, world->file, NULL, 4, SPLICE_F_NONBLOCK); }
static void socket_send(void) { send(world->socket[0], "text", 4, MSG_DONTWAIT | MSG_NOSIGNAL); }

static void socket_receive(void)
{
    char text[8];
    recv(world->socket[1], text, sizeof text, MSG_DONTWAIT);
}

static void socket_shut(void) { shutdown(world->socket[0], SHUT_RDWR); }

static void socket_pass(void)
{
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &world->file, sizeof(int));
    sendmsg(world->socket[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void event_write(void)
{
    unsigned long one = 1;
    (void)!write(world->event, &one, sizeof one);
}

static void event_read(void)
{
    unsigned long value;
    (void)!read(world->event, &value, sizeof value);
}

static void poll_add(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(world->poll_set, EPOLL_CTL_ADD, world->pipe[0], &event);
}

static void poll_remove(void) { epoll_ctl(world->poll_set, EPOLL_CTL_DEL, world->event, NULL); }

static void poll_wait(void)
{
    struct epoll_event events[4];
    epoll_wait(world->poll_set, events, 4, 0);
}

static void timer_set(void)
{
    struct itimerspec later = {.it_value = {.tv_sec = 1000}};
    timerfd_settime(world->timer, 0, &later, NULL);
}

static void watch_add(void) { inotify_add_watch(world->watch, world->folder, IN_CREATE | IN_DELETE | IN_MASK_ADD); }
static void watch_remove(void) { inotify_rm_watch(world->watch, world->watch_number); }
static void touch(void) { *(volatile char *)(world->memory + PAGE) = 1; }
static void unmap(void) { munmap(world->memory + PAGE, PAGE); }
static void protect(void) { mprotect(world->memory, PAGE, PROT_READ); }
static void discard(void) { madvise(world->memory, 2 * PAGE, MADV_DONTNEED); }
static void remap(void) { mremap(world->memory + 2 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE); }
static void map(void) { mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, world->file, 0); }
static void grow(void) { syscall(SYS_brk, syscall(SYS_brk, 0) + PAGE); }
static void wake(void) { syscall(SYS_futex, &world->word, FUTEX_WAKE, 1, NULL, NULL, 0); }

static void requeue(void)
{
    syscall(SYS_futex, &world->word, FUTEX_CMP_REQUEUE, 1, 1, world->memory + 3 * PAGE, 0);
}

static void attach(void) { shmat(world->segment, NULL, 0); }
static void segment_remove(void) { shmctl(world->segment, IPC_RMID, NULL); }

static void queue_send(void)
{
    struct { long type; char text[8]; } message = {1, "text"};
    msgsnd(world->queue, &message, 8, IPC_NOWAIT);
}

static void queue_receive(void)
{
    struct { long type; char text[8]; } message;
    msgrcv(world->queue, &message, 8, 0, IPC_NOWAIT);
}

static void queue_remove(void) { msgctl(world->queue, IPC_RMID, NULL); }

static void semaphore_up(void)
{
    struct sembuf up = {0, 1, IPC_NOWAIT | SEM_UNDO};
    semop(world->semaphore, &up, 1);
}

static void semaphore_remove(void) { semctl(world->semaphore, 0, IPC_RMID); }
static void key_add(void) { syscall(SYS_add_key, "user", "other", "text", 4, world->ring); }
static void key_update(void) { syscall(SYS_keyctl, KEYCTL_UPDATE, world->key, "next", 4); }
static void key_revoke(void) { syscall(SYS_keyctl, KEYCTL_REVOKE, world->key); }
static void key_link(void) { syscall(SYS_keyctl, KEYCTL_LINK, world->key, KEY_SPEC_PROCESS_KEYRING); }
static void key_unlink(void) { syscall(SYS_keyctl, KEYCTL_UNLINK, world->key, world->ring); }
static void key_clear(void) { syscall(SYS_keyctl, KEYCTL_CLEAR, world->ring); }
static void duplicate(void) { close(fcntl(world->file, F_DUPFD, 0)); }
static void replace(void) { dup2(world->event, world->timer); }
static void signal_self(void) { syscall(SYS_tgkill, getpid(), getpid(), 0); }
static void rename_self(void) { prctl(PR_SET_NAME, "other"); }
static void limits(void) { setrlimit(RLIMIT_CORE, &(struct rlimit){0, RLIM_INFINITY}); }
static void credentials(void) { syscall(SYS_setresuid, 0, 0, -1); }
static void group(void) { setpgid(0, 0); }

static void status_of_self(void)
{
    char text[1024];
    int file = open("/proc/self/status", O_RDONLY);
    (void)!read(file, text, sizeof text);
    close(file);
}

static void maps_of_self(void)
{
    char text[1024];
    int file = open("/proc/self/maps", O_RDONLY);
    (void)!read(file, text, sizeof text);
    close(file);
}

static const struct {
    const char *name;
    void (*call)(void);
} calls[] = {
#define CALL(name) {#name, name}
    CALL(create), CALL(create_only), CALL(remove_file), CALL(rename_file), CALL(exchange), CALL(link_file),
    CALL(make_folder), CALL(remove_folder), CALL(append), CALL(shorten), CALL(allocate), CALL(mode), CALL(attribute),
    CALL(look), CALL(read_file), CALL(list), CALL(lock_part), CALL(lock_whole), CALL(pipe_write), CALL(pipe_read),
    CALL(pipe_resize), CALL(pipe_splice), CALL(socket_send), CALL(socket_receive), CALL(socket_shut), CALL(socket_pass),
    CALL(event_write), CALL(event_read), CALL(poll_add), CALL(poll_remove), CALL(poll_wait), CALL(timer_set),
    CALL(watch_add), CALL(watch_remove), CALL(touch), CALL(unmap), CALL(protect), CALL(discard), CALL(remap), CALL(map),
    CALL(grow), CALL(wake), CALL(requeue), CALL(attach), CALL(segment_remove), CALL(queue_send), CALL(queue_receive),
    CALL(queue_remove), CALL(semaphore_up), CALL(semaphore_remove), CALL(key_add), CALL(key_update), CALL(key_revoke),
    CALL(key_link), CALL(key_unlink), CALL(key_clear), CALL(duplicate), CALL(replace), CALL(signal_self),
    CALL(rename_self), CALL(limits), CALL(credentials), CALL(group), CALL(status_of_self), CALL(maps_of_self),
};
#define CALLS ((int)(sizeof calls / sizeof calls[0]))

static int chosen[2];

static void make(struct world *made, int number)
{
    struct epoll_event event = {.events = EPOLLIN};
    world = made;
    snprintf(made->folder, sizeof made->folder, "/tmp/world%d", number);
    expect(mkdir(made->folder, 0755) == 0);
    made->directory = open(made->folder, O_RDONLY | O_DIRECTORY);
    made->file = openat(at(), "file", O_CREAT | O_RDWR, 0644);
    made->again = openat(at(), "file", O_WRONLY | O_APPEND);
    expect(made->again >= 0 && write(made->file, "some text", 9) == 9 && mkdirat(at(), "folder", 0755) == 0);
    expect(pipe2(made->pipe, O_NONBLOCK) == 0 && write(made->pipe[1], "text", 4) == 4);
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made->socket) == 0);
    made->event = eventfd(1, EFD_NONBLOCK);
    made->poll_set = epoll_create1(0);
    expect(epoll_ctl(made->poll_set, EPOLL_CTL_ADD, made->event, &event) == 0);
    made->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    made->watch = inotify_init1(IN_NONBLOCK);
    made->watch_number = inotify_add_watch(made->watch, made->folder, IN_MODIFY);
    expect(made->timer >= 0 && made->watch_number > 0);
    made->segment = shmget(IPC_PRIVATE, PAGE, 0600);
    made->queue = msgget(IPC_PRIVATE, 0600);
    made->semaphore = semget(IPC_PRIVATE, 1, 0600);
    expect(made->segment >= 0 && made->queue >= 0 && made->semaphore >= 0);
    queue_send();
    made->ring = syscall(SYS_add_key, "keyring", made->folder, NULL, 0, KEY_SPEC_PROCESS_KEYRING);
    made->key = syscall(SYS_add_key, "user", "key", "text", 4, made->ring);
    expect(made->ring > 0 && made->key > 0);
    made->memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(made->memory != MAP_FAILED);
    memset(made->memory, 1, 4 * PAGE);
}

/* A page that the other took away is a reason for a signal, not for the end. */
static void ignore_fault(int number)
{
    (void)number;
    mmap(world->memory + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void setup(void)
{
    int input = rockfall_input(CALLS * CALLS);
    chosen[0] = input / CALLS % CALLS;
    chosen[1] = input % CALLS;
    say("%s || %s", calls[chosen[0]].name, calls[chosen[1]].name);
    signal(SIGSEGV, ignore_fault);
    make(&worlds[0], 0);
    for (int i = 0; i < 2; i++)
        calls[chosen[i]].call();
    make(&worlds[1], 1);
}

static void first(void) { calls[chosen[0]].call(); }
static void second(void) { calls[chosen[1]].call(); }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

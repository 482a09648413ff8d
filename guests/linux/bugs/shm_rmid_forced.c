/* A shared memory segment whose maker is gone is attached while the administrator asks for all such to be destroyed. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rockfall_test.h"

static int forced, segment;

/* A segment made by a process that has ended. */
static int orphan(void)
{
    int id = -1, ends[2];
    expect(pipe(ends) == 0);
    pid_t maker = fork();
    if (maker == 0) {
        id = shmget(IPC_PRIVATE, 4096, 0600);
        _exit(write(ends[1], &id, sizeof id) == sizeof id ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    expect(read(ends[0], &id, sizeof id) == sizeof id && id >= 0);
    expect(waitpid(maker, NULL, 0) == maker);
    close(ends[0]);
    close(ends[1]);
    return id;
}

static void setup(void)
{
    forced = open("/proc/sys/kernel/shm_rmid_forced", O_WRONLY);
    expect(forced >= 0);
    segment = orphan();
    expect(pwrite(forced, "1", 1, 0) == 1 && pwrite(forced, "0", 1, 0) == 1);
    segment = orphan();
}

static void first(void) { expect(pwrite(forced, "1", 1, 0) == 1); }

static void second(void)
{
    void *at = shmat(segment, NULL, 0);
    if ((intptr_t)at != -1)
        expect(shmdt(at) == 0);
    else
        expect(errno == EINVAL || errno == EIDRM);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};

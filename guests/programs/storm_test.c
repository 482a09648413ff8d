/* Much of everything at once: tasks and threads that fork, wait, lock, yield and vanish, for a while. */
#include <stddef.h>

#include "../runtime/stdio.h"
#include "../runtime/syscall.h"
#include "../threadlib/rwlock.h"
#include "../threadlib/sem.h"
#include "../threadlib/thr.h"

enum { THREADS = 4, ROUNDS = 20, TASKS = 4 };

static struct rwlock lock;
static struct sem places;
static int written;

static void *worker(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&places);
        if (i % 3 == 0) {
            rwlock_lock(&lock, RWLOCK_WRITE);
            written++;
            rwlock_downgrade(&lock);
            int seen = written;
            yield(-1);
            assert(written == seen);
        } else {
            rwlock_lock(&lock, RWLOCK_READ);
        }
        rwlock_unlock(&lock);
        sem_signal(&places);
    }
    return arg;
}

static void threads(void)
{
    int tids[THREADS];
    thr_init(2048);
    rwlock_init(&lock);
    sem_init(&places, 2);
    for (int i = 0; i < THREADS; i++)
        tids[i] = thr_create(worker, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *status;
        assert(thr_join(tids[i], &status) == 0 && status == (void *)i);
    }
    assert(written == THREADS * 7);
}

int main(void)
{
    for (int i = 0; i < TASKS; i++) {
        if (fork() == 0) {
            int twin = i % 2 == 0 ? fork() : -1;
            threads();
            assert(twin <= 0 || wait(NULL) == twin);
            exit(0);
        }
    }
    for (int i = 0; i < TASKS; i++) {
        int status;
        assert(wait(&status) > 0 && status == 0);
    }
    printf("storm_test: ok\n");
    return 0;
}

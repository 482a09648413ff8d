/* Two threads contend for a mutex, one of them twice, so that lock meets lock and lock meets unlock. */
#include <assert.h>
#include <mutex.h>
#include <stdlib.h>
#include <syscall.h>
#include <thread.h>

static mutex_t lock;
static volatile int inside;

static void critical_section(void)
{
    mutex_lock(&lock);
    inside++;
    assert(inside == 1);
    inside--;
    mutex_unlock(&lock);
}

static void *contender(void *arg)
{
    critical_section();
    vanish();
    return arg;
}

int main(void)
{
    thr_init(4096);
    mutex_init(&lock);
    thr_create(contender, NULL);
    critical_section();
    critical_section();
    vanish();
    return 0;
}
